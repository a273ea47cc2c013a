// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// TestChangedSourceIsAskedAnew: an answer of the server that a source named before is
// not given for the one that it names now, however long the interval.
func TestChangedSourceIsAskedAnew(t *testing.T) {
	valued := func(value int) v1alpha1.SourceSpec {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1700000000,"%d"]}]}}`, value)
		}))
		t.Cleanup(server.Close)
		return v1alpha1.SourceSpec{Name: "main", Prometheus: &v1alpha1.PrometheusSource{URL: server.URL}}
	}
	set := &sourceSet{clock: clock.RealClock{}, observe: func(string, string) {}}
	desk := query.NewDesk(clock.RealClock{}, func() float64 { return 0 }, set.find, query.Limits{})
	ask := func() float64 {
		t.Helper()
		answer, err := desk.Ask(t.Context(), query.Question{Source: "main", Expression: "up", Interval: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Samples[0].Value
	}
	one, two := valued(1), valued(2)
	for _, step := range []struct {
		spec v1alpha1.SourceSpec
		want float64
	}{{one, 1}, {one, 1}, {two, 2}, {one, 1}} {
		set.apply(t.Context(), []v1alpha1.SourceSpec{step.spec}, nil)
		if got := ask(); got != step.want {
			t.Errorf("the source at %s answers %v", step.spec.Prometheus.URL, got)
		}
	}
}
