// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
)

const (
	metricUnavailable  = "aggregator_unavailable_apiservice"
	metricTerminations = "apiserver_request_terminations_total"
	metricsSubject     = "/metrics"
	// maxLine is far above the longest series of kube-apiserver.
	maxLine = 1 << 20
)

// aggregatorAvailable checks KEP-5207's service level indicators in the metrics of the
// kube-apiserver that answers.
func aggregatorAvailable(ctx context.Context, snap *snapshot) []Result {
	families, err := snap.readMetrics(ctx, metricUnavailable, metricTerminations)
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsNotFound(err):
		return []Result{skip(metricsSubject, "kube-apiserver's metrics may not be read; its monitoring should watch %s", metricUnavailable)}
	case err != nil:
		return []Result{snap.requestFailed(metricsSubject, err, "is kube-apiserver healthy?").withCommand(readyz)}
	}
	unavailable := map[string]float64{}
	for _, metric := range families[metricUnavailable].GetMetric() {
		unavailable[label(metric, "name")] = metric.GetGauge().GetValue()
	}
	terminated := 0.0
	for _, metric := range families[metricTerminations].GetMetric() {
		if label(metric, "component") == "aggregator" {
			terminated += metric.GetCounter().GetValue()
		}
	}
	var results []Result
	for _, version := range snap.expected {
		series := fmt.Sprintf("%s{name=%q}", metricUnavailable, nameOf(version))
		value, known := unavailable[nameOf(version)]
		switch {
		case !known && aggregation.Find(snap.registrations, version) == nil:
		case !known:
			results = append(results, warn(series, "this kube-apiserver has no such series yet", "look again in a minute"))
		case value != 0:
			results = append(results, fail(series, fmt.Sprintf("is %g", value), "see apiservice-available"))
		default:
			results = append(results, pass(series, "is 0"))
		}
	}
	// This counter starts with kube-apiserver: only its growth is a problem.
	return append(results, pass(metricTerminations+`{component="aggregator"}`, "is %g; it should not grow", terminated))
}

func label(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// readMetrics reads only the named metrics: all of kube-apiserver's are many megabytes.
func (snap *snapshot) readMetrics(ctx context.Context, names ...string) (map[string]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(ctx, snap.cluster.Timeout)
	defer cancel()
	body, err := snap.cluster.Stream(ctx, metricsSubject)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	text, err := filterMetrics(body, names)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", metricsSubject, err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("GET %s: decode the answer: %w", metricsSubject, err)
	}
	return families, nil
}

// filterMetrics keeps the lines of the named metrics, with their types.
func filterMetrics(body io.Reader, names []string) (io.Reader, error) {
	var kept bytes.Buffer
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		line := lines.Text()
		for _, name := range names {
			if rest, ok := strings.CutPrefix(strings.TrimPrefix(line, "# TYPE "), name); ok && (strings.HasPrefix(rest, "{") || strings.HasPrefix(rest, " ")) {
				kept.WriteString(line + "\n")
			}
		}
	}
	return &kept, lines.Err()
}
