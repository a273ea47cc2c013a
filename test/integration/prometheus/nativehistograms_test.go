// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package prometheus

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/test/freeport"
	"github.com/metricsbackend/metrics-backend-operator/test/prometheus"
)

// TestNativeHistograms: a function of a native histogram gives values like any other query, and a
// histogram itself is rejected with the functions that take a number of it.
func TestNativeHistograms(t *testing.T) {
	t.Parallel()
	registry := client.NewRegistry()
	latency := client.NewHistogram(client.HistogramOpts{Name: "latency_seconds", NativeHistogramBucketFactor: 1.1})
	depth := client.NewGauge(client.GaugeOpts{Name: "depth"})
	registry.MustRegister(latency, depth)
	depth.Set(4)
	target := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer target.Close()
	server := prometheus.Start(t, prometheus.Scrape(target.URL), "--enable-feature=native-histograms")
	server.WaitFor(t, `latency_seconds`)
	// A rate needs observations between two scrapes.
	for range 1000 {
		latency.Observe(0.25)
	}
	server.WaitFor(t, `histogram_count(rate(latency_seconds[20s])) > 0 and histogram_count(latency_seconds) == 1000`)

	src := newSource(t, v1alpha1.PrometheusSource{URL: server.URL}, nil)
	for expression, want := range map[string]struct{ least, most float64 }{
		`depth`: {4, 4},
		`histogram_quantile(0.9, sum(rate(latency_seconds[20s])))`:                                {0.23, 0.27},
		`histogram_sum(rate(latency_seconds[20s])) / histogram_count(rate(latency_seconds[20s]))`: {0.249, 0.251},
		`histogram_count(latency_seconds)`:                                                        {1000, 1000},
		`depth and on () histogram_quantile(0.5, latency_seconds) > 0`:                            {4, 4},
	} {
		result, err := src.Evaluate(t.Context(), query.Query{Expression: expression}, time.Now())
		if err != nil || len(result.Samples) != 1 || result.Samples[0].Value < want.least || result.Samples[0].Value > want.most {
			t.Errorf("%s: %+v, %v; want a value from %g to %g", expression, result, err, want.least, want.most)
		}
	}
	for _, expression := range []string{`latency_seconds`, `sum(rate(latency_seconds[20s]))`} {
		_, err := src.Evaluate(t.Context(), query.Query{Expression: expression}, time.Now())
		var f *query.Failure
		if !errors.As(err, &f) || f.Reason != query.ReasonRejected || !strings.Contains(f.Message, "histogram_quantile(), histogram_count() or histogram_sum()") {
			t.Errorf("%s: %v, want the functions for native histograms", expression, err)
		}
	}
}

// TestPartialResponse: with a remote storage that does not answer Prometheus returns what it has
// itself, and a warning. Values of that are rejected, unless the source accepts them.
func TestPartialResponse(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(promhttp.HandlerFor(client.NewRegistry(), promhttp.HandlerOpts{}))
	defer target.Close()
	server := prometheus.Start(t, prometheus.Scrape(target.URL)+fmt.Sprintf("remote_read: [{url: 'http://%s/read', read_recent: true}]\n", freeport.Address(t)))
	server.WaitFor(t, `up`)
	strict := newSource(t, v1alpha1.PrometheusSource{URL: server.URL}, nil)
	_, err := strict.Evaluate(t.Context(), query.Query{Expression: `sum(up)`}, time.Now())
	var f *query.Failure
	if !errors.As(err, &f) || f.Reason != query.ReasonPartialResponse || !strings.Contains(f.Message, "remote_read") {
		t.Errorf("rejected: %v, want PartialResponse with Prometheus' warning", err)
	}
	if h := strict.Health(); h.Healthy || h.Reason != string(query.ReasonPartialResponse) {
		t.Errorf("health %+v", h)
	}

	lenient := newSource(t, v1alpha1.PrometheusSource{URL: server.URL, PartialResponsePolicy: v1alpha1.PartialResponseAccept}, nil)
	result, err := lenient.Evaluate(t.Context(), query.Query{Expression: `sum(up)`}, time.Now())
	if err != nil || len(result.Samples) != 1 || len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], "remote_read") {
		t.Errorf("accepted: %+v, %v, want a sample with Prometheus' warning", result, err)
	}
}
