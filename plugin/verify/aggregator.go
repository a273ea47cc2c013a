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
)

const (
	metricUnavailable  = "aggregator_unavailable_apiservice"
	metricTerminations = "apiserver_request_terminations_total"
	metricsSubject     = "/metrics"
	// maxLine is far above the longest series of kube-apiserver.
	maxLine = 1 << 20
)

// aggregatorAvailable reads KEP-5207's service level indicators from the
// kube-apiserver that answers.
func aggregatorAvailable(ctx context.Context, l *look) []Result {
	families, err := l.figures(ctx, metricUnavailable, metricTerminations)
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsNotFound(err):
		return []Result{skip(metricsSubject, "kube-apiserver's metrics may not be read; its monitoring should watch %s", metricUnavailable)}
	case err != nil:
		return []Result{l.unread(metricsSubject, err, "is kube-apiserver healthy? kubectl get --raw /readyz?verbose")}
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
	for _, version := range l.expected {
		series := fmt.Sprintf("%s{name=%q}", metricUnavailable, nameOf(version))
		value, known := unavailable[nameOf(version)]
		switch {
		case !known && l.registration(version) == nil:
		case !known:
			results = append(results, warn(series, "this kube-apiserver has no such series yet", "look again in a minute"))
		case value != 0:
			results = append(results, fail(series, fmt.Sprintf("is %g", value), "see apiservice-available"))
		default:
			results = append(results, pass(series, "is 0"))
		}
	}
	// It counts from kube-apiserver's start, so that only its growth means something.
	return append(results, pass(metricTerminations+`{component="aggregator"}`, "is %g; it should not grow", terminated))
}

func label(metric *dto.Metric, name string) string {
	for _, l := range metric.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// figures reads only the named metrics: all of kube-apiserver's are many megabytes.
func (l *look) figures(ctx context.Context, names ...string) (map[string]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cluster.Timeout)
	defer cancel()
	body, err := l.cluster.Stream(ctx, metricsSubject)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	text, err := only(body, names)
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

// only keeps the lines of the named metrics, with their types.
func only(body io.Reader, names []string) (io.Reader, error) {
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
