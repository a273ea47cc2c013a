// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// answeringServer is a server with Prometheus' HTTP API and one series.
func answeringServer(t *testing.T) *httptest.Server {
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

func newSourceSet(t *testing.T) *sourceSet {
	t.Helper()
	s := &sourceSet{clock: clock.RealClock{}, observe: func(string, string) {}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s
}

func states(s *sourceSet) map[string]string {
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

// TestSourcesByThemselves: a source that cannot be used is told of and stops no other.
func TestSourcesByThemselves(t *testing.T) {
	s := newSourceSet(t)
	server := answeringServer(t)
	errs := field.ErrorList{field.Invalid(field.NewPath("spec", "sources").Index(1).Child("name"), "B@D", "is no name")}
	s.apply(t.Context(), []v1alpha1.SourceSpec{prometheusAt("good", server.URL), prometheusAt("B@D", server.URL), {Name: "empty"}, prometheusAt("away", "http://127.0.0.1:1")}, errs)
	eventuallyTrue(t, "all sources were tried", func() bool {
		return cmp.Equal(states(s), map[string]string{"good": "healthy", "B@D": "InvalidSpec", "empty": "InvalidSpec", "away": "ConnectionFailed"})
	})
	for name, want := range map[string]bool{"good": true, "away": true, "B@D": true, "empty": true, "none": false} {
		if _, found := s.find(name); found != want {
			t.Errorf("%s can be asked: %t, want %t", name, found, want)
		}
	}
	broken, _ := s.find("empty")
	if _, err := broken.Evaluate(t.Context(), "up", time.Time{}); err == nil || !strings.Contains(err.Error(), `source "empty": InvalidSpec`) {
		t.Errorf("a source that cannot be used answers %v", err)
	}
	if found, _ := s.found("empty", "up"); found.Err == nil {
		t.Error("a source that cannot be used has series")
	}
	for _, h := range s.health() {
		if h.Reason == string(reasonInvalidSpec) && (h.Message == "" || h.Since.IsZero()) {
			t.Errorf("%+v does not say what is wrong", h)
		}
	}
	// It is mended, another is gone, and the order is that of the spec.
	s.apply(t.Context(), []v1alpha1.SourceSpec{prometheusAt("B@D", server.URL), prometheusAt("good", server.URL)}, nil)
	eventuallyTrue(t, "the mended source is healthy", func() bool {
		return cmp.Equal(states(s), map[string]string{"good": "healthy", "B@D": "healthy"})
	})
	if got := s.health()[0].Name; got != "B@D" {
		t.Errorf("the first source is %s", got)
	}
}

// TestEditedSource keeps its connections and what it knows; but its answers are asked
// for anew, since it may be another server, or another tenant's.
func TestEditedSource(t *testing.T) {
	s := newSourceSet(t)
	server := answeringServer(t)
	s.apply(t.Context(), []v1alpha1.SourceSpec{prometheusAt("main", server.URL)}, nil)
	before := s.lookup("main")
	s.apply(t.Context(), []v1alpha1.SourceSpec{prometheusAt("main", server.URL)}, nil)
	if s.lookup("main") != before {
		t.Error("without an edit it became another source")
	}
	edited := prometheusAt("main", server.URL)
	edited.Prometheus.Headers = []v1alpha1.SourceHeader{{Name: "X-Scope-OrgID", Value: "other"}}
	s.apply(t.Context(), []v1alpha1.SourceSpec{edited}, nil)
	after := s.lookup("main")
	if after == before || after.prometheus != before.prometheus {
		t.Error("an edit lost what the source knows, or left its answers valid")
	}
}

// TestFirstReadinessWaitsForSources that are not optional: until they have answered and
// their series are known.
func TestFirstReadinessWaitsForSources(t *testing.T) {
	server := answeringServer(t)
	optional := prometheusAt("optional", "http://127.0.0.1:1")
	optional.Optional = true
	tests := map[string]struct {
		sources []v1alpha1.SourceSpec
		// waits is what is waited for, for ever; empty for nothing in the end.
		waits string
	}{
		"no source":                    {},
		"a source that answers":        {sources: []v1alpha1.SourceSpec{prometheusAt("main", server.URL)}},
		"a source that is away":        {sources: []v1alpha1.SourceSpec{prometheusAt("main", "http://127.0.0.1:1")}, waits: `source "main" has not answered: ConnectionFailed`},
		"an optional one that is away": {sources: []v1alpha1.SourceSpec{optional, prometheusAt("main", server.URL)}},
		"one that cannot be used":      {sources: []v1alpha1.SourceSpec{{Name: "empty"}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSourceSet(t)
			s.apply(t.Context(), tc.sources, nil)
			s.follow(map[string][]string{"main": {"queue_length"}})
			eventuallyTrue(t, "it is known what is waited for", func() bool {
				err := s.waiting()
				return tc.waits == "" && err == nil || tc.waits != "" && err != nil && strings.Contains(err.Error(), tc.waits)
			})
			if tc.waits != "" {
				return
			}
			if found, ok := s.found("main", "queue_length"); ok && len(found.Series) != 1 {
				t.Errorf("ready with series %+v", found)
			}
		})
	}
}
