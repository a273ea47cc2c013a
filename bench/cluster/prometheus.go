// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/metricsbackend/metrics-backend-operator/test/freeport"
	"github.com/metricsbackend/metrics-backend-operator/test/prometheus"
)

// Prometheus is a process of a real Prometheus.
type Prometheus struct {
	*prometheus.Process
}

// StartPrometheus starts Prometheus, which scrapes a target each interval and stores its data
// in a folder.
func StartPrometheus(ctx context.Context, folder, target string, interval time.Duration) (*Prometheus, error) {
	folder = filepath.Join(folder, "prometheus")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make Prometheus' folder: %w", err)
	}
	port, err := freeport.Port()
	if err != nil {
		return nil, err
	}
	process, err := prometheus.Launch(ctx, folder, freeport.Join(port), strings.Replace(prometheus.Scrape(target), "interval: 1s", "interval: "+interval.String(), 1))
	if err != nil {
		return nil, err
	}
	return &Prometheus{process}, nil
}

// Queries returns the number of instant queries that Prometheus has counted.
func (p *Prometheus) Queries(ctx context.Context) (int, error) {
	body, err := p.Get(ctx, "/metrics")
	if err != nil {
		return 0, fmt.Errorf("read Prometheus' own metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("parse Prometheus' own metrics: %w", err)
	}
	const name = "prometheus_http_requests_total"
	if families[name] == nil {
		return 0, fmt.Errorf("metric %s of Prometheus is missing", name)
	}
	sum := 0.0
	for _, m := range families[name].GetMetric() {
		for _, label := range m.GetLabel() {
			if label.GetName() == "handler" && label.GetValue() == "/api/v1/query" {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return int(sum), nil
}
