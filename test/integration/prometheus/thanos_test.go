// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	source "github.com/metricsbackend/metrics-backend-operator/serving/prometheus"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
	"github.com/metricsbackend/metrics-backend-operator/test/prometheus"
)

// TestThanos: a querier over two sidecars, of which one stops. As docs/reference/prometheus.md says, a partial
// response is a failure while Thanos reports that it is one; a store that is not strict is soon
// missing without a word.
func TestThanos(t *testing.T) {
	t.Parallel()
	_, url := serveSeries(t, series)
	var sidecars []*prometheus.Server
	var stores []string
	for _, cluster := range []string{"one", "two"} {
		config := strings.Replace(prometheus.Scrape(url), "{scrape", "{external_labels: {cluster: "+cluster+"}, scrape", 1)
		server := prometheus.Start(t, config)
		server.WaitFor(t, scraped)
		sidecar, store := prometheus.StartThanosSidecar(t, server)
		sidecars, stores = append(sidecars, sidecar), append(stores, store)
	}
	const sum = `sum(queue_length)` // 21.5 in each
	strict := prometheus.StartThanosQuery(t, "--endpoint-strict="+stores[0], "--endpoint-strict="+stores[1])
	loose := prometheus.StartThanosQuery(t, "--endpoint="+stores[0], "--endpoint="+stores[1])
	strict.WaitFor(t, sum+" == 43")
	loose.WaitFor(t, sum+" == 43")
	reject := newSource(t, v1alpha1.PrometheusSource{URL: strict.URL}, nil)
	accept := newSource(t, v1alpha1.PrometheusSource{URL: strict.URL, PartialResponsePolicy: v1alpha1.PartialResponseAccept}, nil)
	ofLoose := newSource(t, v1alpha1.PrometheusSource{URL: loose.URL}, nil)
	for name, s := range map[string]*source.Source{"strict": reject, "loose": ofLoose} {
		if result, err := s.Evaluate(t.Context(), query.Query{Expression: sum}, time.Now()); err != nil || result.Samples[0].Value != 43 || len(result.Warnings) > 0 {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
	}
	rejections(t, reject, map[string]string{
		`sum(queue_length`:          "parse error",
		`queue_length[1m]`:          "ranges of samples",
		`other + on() queue_length`: "many matching",
	})

	with := func(parameters ...v1alpha1.SourceQueryParameter) *source.Source {
		return newSource(t, v1alpha1.PrometheusSource{URL: strict.URL, QueryParameters: parameters}, nil)
	}
	for name, tc := range map[string]struct {
		source *source.Source
		want   float64
	}{
		"deduplicated": {with(v1alpha1.SourceQueryParameter{Name: "replicaLabels[]", Value: "cluster"}), 21.5},
		"one store":    {with(v1alpha1.SourceQueryParameter{Name: "storeMatch[]", Value: `{__address__="` + stores[0] + `"}`}), 21.5},
		"both stores":  {with(v1alpha1.SourceQueryParameter{Name: "storeMatch[]", Value: `{__address__="` + stores[0] + `"}`}, v1alpha1.SourceQueryParameter{Name: "storeMatch[]", Value: `{__address__="` + stores[1] + `"}`}), 43},
	} {
		if result, err := tc.source.Evaluate(t.Context(), query.Query{Expression: sum}, time.Now()); err != nil || result.Samples[0].Value != tc.want {
			t.Errorf("%s: %+v, %v, want %g", name, result, err, tc.want)
		}
	}
	rejections(t, with(v1alpha1.SourceQueryParameter{Name: "dedup", Value: "perhaps"}), map[string]string{"vector(1)": "dedup"})

	sidecars[1].Stop(t)
	_, err := reject.Evaluate(t.Context(), query.Query{Expression: sum}, time.Now())
	var f *query.Failure
	if !errors.As(err, &f) || f.Reason != query.ReasonPartialResponse || !strings.Contains(f.Message, stores[1]) {
		t.Errorf("rejected: %v, want PartialResponse with the store's address %s", err, stores[1])
	}
	result, err := accept.Evaluate(t.Context(), query.Query{Expression: sum}, time.Now())
	if err != nil || len(result.Samples) != 1 || result.Samples[0].Value != 21.5 || len(result.Warnings) == 0 {
		t.Errorf("accepted: %+v, %v, want the half with a warning", result, err)
	}
	outcome.Eventually(t, time.Minute, "Thanos forgets a store that is not strict", func(ctx context.Context) error {
		result, err := ofLoose.Evaluate(ctx, query.Query{Expression: sum}, time.Now())
		if err != nil || result.Samples[0].Value != 21.5 || len(result.Warnings) > 0 {
			return fmt.Errorf("%+v, %v", result, err)
		}
		return nil
	})
	if _, err := reject.Evaluate(t.Context(), query.Query{Expression: sum}, time.Now()); !errors.As(err, &f) || f.Reason != query.ReasonPartialResponse {
		t.Errorf("rejected later: %v", err)
	}
}
