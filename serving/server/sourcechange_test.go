// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// TestChangesThatVoidNoAnswers: what a source has answered stays, and stays to fall back on,
// while only how it is asked, and who may see what of it, has changed.
func TestChangesThatVoidNoAnswers(t *testing.T) {
	spec := v1alpha1.SourceSpec{Name: "main", Prometheus: &v1alpha1.PrometheusSource{URL: "http://prometheus.example"}}
	for name, test := range map[string]struct {
		change func(*v1alpha1.SourceSpec)
		same   bool
	}{
		"tenancy": {func(s *v1alpha1.SourceSpec) { s.Prometheus.Tenancy.UnconfinedNamespaces = []string{"shop"} }, true},
		"times": {func(s *v1alpha1.SourceSpec) {
			d := &metav1.Duration{Duration: time.Minute}
			s.Prometheus.Interval, s.Prometheus.Timeout, s.Prometheus.SeriesInterval, s.Prometheus.SeriesMaxAge = d, d, d, d
		}, true},
		"optional": {func(s *v1alpha1.SourceSpec) { s.Optional = true }, true},
		"URL":      {func(s *v1alpha1.SourceSpec) { s.Prometheus.URL += "/other" }, false},
		"tenant": {func(s *v1alpha1.SourceSpec) {
			s.Prometheus.Headers = []v1alpha1.SourceHeader{{Name: "X-Scope-OrgID", Value: "a"}}
		}, false},
		"credentials": {func(s *v1alpha1.SourceSpec) {
			s.Prometheus.Authentication.Basic = &v1alpha1.SecretReference{Name: "a"}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			set := &sourceSet{clock: clock.RealClock{}, observe: func(string, string) {}}
			set.apply(t.Context(), []v1alpha1.SourceSpec{spec}, nil)
			before, _ := set.find("main")
			changed := *spec.DeepCopy()
			test.change(&changed)
			set.apply(t.Context(), []v1alpha1.SourceSpec{changed}, nil)
			after, _ := set.find("main")
			if (before == after) != test.same {
				t.Errorf("the evaluator sees the same source: %v", before == after)
			}
			if got := set.lookup("main").spec; !reflect.DeepEqual(got, changed) {
				t.Errorf("the spec in force is %+v", got)
			}
		})
	}
}

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
	evaluator := query.NewEvaluator(clock.RealClock{}, func() float64 { return 0 }, set.find, query.Limits{})
	ask := func() float64 {
		t.Helper()
		answer, err := evaluator.Query(t.Context(), query.Query{Source: "main", Expression: "up", Interval: time.Hour})
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
