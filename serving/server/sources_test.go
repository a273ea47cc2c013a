// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/metricsapi"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// prometheusServer is a server with Prometheus' HTTP API and one series.
func prometheusServer(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body := `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"queue":"a"},"value":[1700000000,"3"]}]}}`
		if strings.HasSuffix(r.URL.Path, "/series") {
			body = `{"status":"success","data":[{"__name__":"queue_length","queue":"a"}]}`
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return s
}

func prometheusAt(name, url string) v1alpha1.SourceSpec {
	return v1alpha1.SourceSpec{Name: name, Prometheus: &v1alpha1.PrometheusSource{URL: url}}
}

func newSourceRegistry(t *testing.T) *sourceRegistry {
	t.Helper()
	s := &sourceRegistry{clock: clock.RealClock{}, onSeries: func(string, string) {}}
	runUntilEnd(t, s.run)
	return s
}

// runUntilEnd runs a function until the test ends, and waits for it.
func runUntilEnd(t *testing.T, run func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func states(s *sourceRegistry) map[string]string {
	all := map[string]string{}
	for _, h := range s.health() {
		state := h.Reason
		if h.Healthy {
			state = "healthy"
		}
		all[h.Name] = state
	}
	return all
}

func eventuallyTrue(t *testing.T, what string, check func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return check(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// TestInvalidSource: an invalid source is reported and does not affect others.
func TestInvalidSource(t *testing.T) {
	s := newSourceRegistry(t)
	server := prometheusServer(t)
	s.apply([]v1alpha1.SourceSpec{prometheusAt("good", server.URL), prometheusAt("bad", "http://"), {Name: "empty"}, prometheusAt("away", "http://127.0.0.1:1")})
	eventuallyTrue(t, "all sources were tried", func() bool {
		return cmp.Equal(states(s), map[string]string{"good": "healthy", "bad": "InvalidSpec", "empty": "InvalidSpec", "away": "ConnectionFailed"})
	})
	for name, want := range map[string]bool{"good": true, "away": true, "bad": true, "empty": true, "none": false} {
		if _, found := s.find(name); found != want {
			t.Errorf("%s can be asked: %t, want %t", name, found, want)
		}
	}
	broken, _ := s.find("empty")
	if _, err := broken.Evaluate(t.Context(), query.Query{Expression: "up"}, time.Time{}); err == nil || !strings.Contains(err.Error(), `source "empty": InvalidSpec`) {
		t.Errorf("a source that cannot be used answers %v", err)
	}
	if found, _ := s.series("empty", "up"); found.Err == nil {
		t.Error("a source that cannot be used has series")
	}
	for _, h := range s.health() {
		if h.Reason == string(reasonInvalidSpec) && (h.Message == "" || h.Since.IsZero()) {
			t.Errorf("%+v does not say what is wrong", h)
		}
	}
	// It becomes valid, another is removed, and the order is that of the spec.
	s.apply([]v1alpha1.SourceSpec{prometheusAt("bad", server.URL), prometheusAt("good", server.URL)})
	eventuallyTrue(t, "the corrected source is healthy", func() bool {
		return cmp.Equal(states(s), map[string]string{"good": "healthy", "bad": "healthy"})
	})
	if got := s.health()[0].Name; got != "bad" {
		t.Errorf("the first source is %s", got)
	}
}

// TestEditedSource: it keeps its connections and known series, but no cached results, since
// it may be another server or tenant.
func TestEditedSource(t *testing.T) {
	s := newSourceRegistry(t)
	server := prometheusServer(t)
	s.apply([]v1alpha1.SourceSpec{prometheusAt("main", server.URL)})
	before := s.lookup("main")
	s.apply([]v1alpha1.SourceSpec{prometheusAt("main", server.URL)})
	if s.lookup("main") != before {
		t.Error("without an edit it became another source")
	}
	edited := prometheusAt("main", server.URL)
	edited.Prometheus.Headers = []v1alpha1.SourceHeader{{Name: "X-Scope-OrgID", Value: "other"}}
	s.apply([]v1alpha1.SourceSpec{edited})
	after := s.lookup("main")
	if after == before || after.prometheus != before.prometheus {
		t.Error("an edit lost what the source knows, or left its answers valid")
	}
}

// TestEditedMetricsAPI: a source is kept while its own part of the spec stays, and else replaced, also by one of another kind.
func TestEditedMetricsAPI(t *testing.T) {
	s := newSourceRegistry(t)
	s.address = func(context.Context, v1alpha1.ExistingService) (string, error) {
		return "", query.Failf(query.ReasonServiceMissing, "no such Service")
	}
	s.metricsAPITokens = func(string) transport.ResettableTokenSource { return noToken{} }
	api := v1alpha1.SourceSpec{Name: "main", MetricsAPI: &v1alpha1.MetricsAPISource{Service: v1alpha1.ExistingService{Namespace: "keda", Name: "keda", Port: ptr.To[int32](443)}, Group: v1alpha1.ExternalMetricsGroup}}
	optional, edited := *api.DeepCopy(), *api.DeepCopy()
	optional.Optional, edited.MetricsAPI.Service.Name = true, "other"
	invalid := v1alpha1.SourceSpec{Name: "main"}
	prometheus := prometheusAt("main", prometheusServer(t).URL)
	var before *namedSource
	for i, step := range []struct {
		spec    v1alpha1.SourceSpec
		kept    bool
		ready   bool
		reason  string
		metrics bool
	}{
		{spec: api, reason: "Credentials", metrics: true},
		{spec: *api.DeepCopy(), kept: true, reason: "Credentials", metrics: true},
		{spec: optional, kept: true, ready: true, reason: "Credentials", metrics: true},
		{spec: edited, reason: "Credentials", metrics: true},
		{spec: prometheus, ready: true, reason: "healthy"},
		{spec: edited, reason: "Credentials", metrics: true},
		{spec: invalid, ready: true, reason: "InvalidSpec"},
		{spec: edited, reason: "Credentials", metrics: true},
	} {
		s.apply([]v1alpha1.SourceSpec{step.spec})
		after := s.lookup("main")
		if (after == before) != step.kept {
			t.Errorf("step %d: kept is %t", i, after == before)
		}
		before = after
		eventuallyTrue(t, fmt.Sprintf("step %d: the source is %s", i, step.reason), func() bool { return states(s)["main"] == step.reason })
		if err := s.ready(); (err == nil) != step.ready {
			t.Errorf("step %d: ready: %v", i, err)
		}
		_, own := after.source.(*metricsapi.Source)
		if limit := after.Concurrency(); own != step.metrics || (limit > 0) != own {
			t.Errorf("step %d: a %T, limit %d", i, after.source, limit)
		}
		if found, known := s.series("main", "up"); own && (known || found.Err != nil) {
			t.Errorf("step %d: it has series: %+v", i, found)
		}
	}
}

// noToken is a source of tokens that has none.
type noToken struct{}

func (noToken) Token() (*oauth2.Token, error) { return nil, errors.New("not yet") }

func (noToken) ResetTokenOlderThan(time.Time) {}

// TestSourcesReady: sources that are not optional have answered, and their series are known.
func TestSourcesReady(t *testing.T) {
	server := prometheusServer(t)
	optional := prometheusAt("optional", "http://127.0.0.1:1")
	optional.Optional = true
	tests := map[string]struct {
		sources []v1alpha1.SourceSpec
		// waits is what stays missing; empty for nothing.
		waits string
	}{
		"no source":                    {},
		"a source that answers":        {sources: []v1alpha1.SourceSpec{prometheusAt("main", server.URL)}},
		"a source that is away":        {sources: []v1alpha1.SourceSpec{prometheusAt("main", "http://127.0.0.1:1")}, waits: `source "main" has not answered: ConnectionFailed: `},
		"an optional one that is away": {sources: []v1alpha1.SourceSpec{optional, prometheusAt("main", server.URL)}},
		"one that cannot be used":      {sources: []v1alpha1.SourceSpec{{Name: "empty"}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSourceRegistry(t)
			s.apply(tc.sources)
			s.setMatchers(map[string][]string{"main": {"queue_length"}})
			eventuallyTrue(t, "it is known what is waited for", func() bool {
				err := s.ready()
				return tc.waits == "" && err == nil || tc.waits != "" && err != nil && strings.Contains(err.Error(), tc.waits)
			})
			if tc.waits != "" {
				return
			}
			if found, ok := s.series("main", "queue_length"); ok && len(found.Series) != 1 {
				t.Errorf("ready with series %+v", found)
			}
		})
	}
}

// TestChangesThatKeepResults: cached results stay while a change affects only how the source
// is queried and who may read its metrics.
func TestChangesThatKeepResults(t *testing.T) {
	spec := v1alpha1.SourceSpec{Name: "main", Prometheus: &v1alpha1.PrometheusSource{URL: "http://prometheus.example"}}
	for name, test := range map[string]struct {
		change func(*v1alpha1.SourceSpec)
		same   bool
	}{
		"tenancy": {func(s *v1alpha1.SourceSpec) { s.Prometheus.Tenancy.TrustedNamespaces = []string{"shop"} }, true},
		"times": {func(s *v1alpha1.SourceSpec) {
			d := &metav1.Duration{Duration: time.Minute}
			s.Prometheus.Interval, s.Prometheus.Timeout, s.Prometheus.SeriesInterval, s.Prometheus.SeriesLookback = d, d, d, d
		}, true},
		"optional": {func(s *v1alpha1.SourceSpec) { s.Optional = true }, true},
		"URL":      {func(s *v1alpha1.SourceSpec) { s.Prometheus.URL += "/other" }, false},
		"tenant": {func(s *v1alpha1.SourceSpec) {
			s.Prometheus.Headers = []v1alpha1.SourceHeader{{Name: "X-Scope-OrgID", Value: "a"}}
		}, false},
		"credentials": {func(s *v1alpha1.SourceSpec) {
			s.Prometheus.Authentication.BasicAuthSecretRef = &v1alpha1.SecretReference{Name: "a"}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			registry := &sourceRegistry{clock: clock.RealClock{}, onSeries: func(string, string) {}}
			registry.apply([]v1alpha1.SourceSpec{spec})
			before, _ := registry.find("main")
			changed := *spec.DeepCopy()
			test.change(&changed)
			registry.apply([]v1alpha1.SourceSpec{changed})
			after, _ := registry.find("main")
			if (before == after) != test.same {
				t.Errorf("the evaluator sees the same source: %v", before == after)
			}
			if got := registry.lookup("main").spec; !reflect.DeepEqual(got, changed) {
				t.Errorf("the current spec is %+v", got)
			}
		})
	}
}

// TestChangedSourceDropsResults: a cached result of the previous server is not returned for
// the current one, however long the interval.
func TestChangedSourceDropsResults(t *testing.T) {
	valued := func(value int) v1alpha1.SourceSpec {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1700000000,"%d"]}]}}`, value)
		}))
		t.Cleanup(server.Close)
		return v1alpha1.SourceSpec{Name: "main", Prometheus: &v1alpha1.PrometheusSource{URL: server.URL}}
	}
	registry := &sourceRegistry{clock: clock.RealClock{}, onSeries: func(string, string) {}}
	evaluator := query.NewEvaluator(clock.RealClock{}, func() float64 { return 0 }, registry.find, 200)
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
		registry.apply([]v1alpha1.SourceSpec{step.spec})
		if got := ask(); got != step.want {
			t.Errorf("the source at %s answers %v", step.spec.Prometheus.URL, got)
		}
	}
}
