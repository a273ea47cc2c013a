// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// declared is what a fakeTarget received last, as NAMESPACE/NAME.
type declared struct {
	PoliciesSet, MetricsSet    bool
	Policies, Custom, External []string
}

// fakeTarget records what is applied.
type fakeTarget struct {
	// err is returned for all settings.
	err      error
	settings []Settings

	mu sync.Mutex
	declared
}

func (f *fakeTarget) target() Target {
	return Target{
		Settings: func(_ context.Context, s Settings) error {
			if f.err == nil {
				f.settings = append(f.settings, s)
			}
			return f.err
		},
		Metrics: func(custom []*v1alpha1.CustomMetric, external []*v1alpha1.ExternalMetric) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.MetricsSet, f.Custom, f.External = true, names(custom), names(external)
		},
		Policies: func(_ context.Context, policies []*v1alpha1.ExternalMetricsPolicy) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.PoliciesSet, f.Policies = true, names(policies)
		},
	}
}

func names[T metaObject](objects []T) []string {
	var all []string
	for _, o := range objects {
		all = append(all, o.GetNamespace()+"/"+o.GetName())
	}
	return all
}

func backendWith(generation int64, rm *v1alpha1.ResourceMetricsSpec) *v1alpha1.MetricsBackend {
	return &v1alpha1.MetricsBackend{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster", Generation: generation},
		Spec:       v1alpha1.MetricsBackendSpec{ResourceMetrics: rm},
	}
}

func TestWatcherKeepsTheLastGoodSettings(t *testing.T) {
	fast := &v1alpha1.ResourceMetricsSpec{Scrape: v1alpha1.ScrapeSpec{Interval: duration(10 * time.Second)}}
	bad := &v1alpha1.ResourceMetricsSpec{Scrape: v1alpha1.ScrapeSpec{MaxResponseSize: "much"}}
	tests := map[string]struct {
		applied        []*v1alpha1.MetricsBackend
		err            error
		want           []time.Duration
		wantGeneration int64
	}{
		"nothing read": {},
		"one": {
			applied:        []*v1alpha1.MetricsBackend{backendWith(1, fast)},
			want:           []time.Duration{10 * time.Second},
			wantGeneration: 1,
		},
		"a bad one after a good one changes nothing": {
			applied:        []*v1alpha1.MetricsBackend{backendWith(1, fast), backendWith(2, bad), backendWith(3, bad)},
			want:           []time.Duration{10 * time.Second},
			wantGeneration: 1,
		},
		"a good one after a bad one": {
			applied:        []*v1alpha1.MetricsBackend{backendWith(1, bad), backendWith(2, bad), backendWith(3, fast)},
			want:           []time.Duration{15 * time.Second, 10 * time.Second}, // the defaults first
			wantGeneration: 3,
		},
		"the target returns an error": {
			applied: []*v1alpha1.MetricsBackend{backendWith(1, fast)},
			err:     errors.New("refused"),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			target := &fakeTarget{err: tc.err}
			w := &Watcher{target: target.target()}
			for _, backend := range tc.applied {
				w.apply(t.Context(), "test", backend)
			}
			var got []time.Duration
			for _, s := range target.settings {
				got = append(got, s.Kubelet.Interval)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("applied intervals (-want +got):\n%s", diff)
			}
			if got := w.ObservedGeneration(); got != tc.wantGeneration {
				t.Errorf("observed generation %d, want %d", got, tc.wantGeneration)
			}
		})
	}
}

// TestApplyDefaults: they never replace settings that were read, and pin no kubelet's certificate.
func TestApplyDefaults(t *testing.T) {
	for name, tc := range map[string]struct {
		backend *v1alpha1.MetricsBackend
		want    []string
	}{
		"nothing read":             {nil, []string{"true Verify"}},
		"a backend was read":       {backendWith(1, nil), []string{"false Verify"}},
		"one without a generation": {backendWith(0, nil), []string{"false Verify"}},
	} {
		t.Run(name, func(t *testing.T) {
			target := &fakeTarget{}
			w := &Watcher{target: target.target()}
			if tc.backend != nil {
				w.apply(t.Context(), "test", tc.backend)
			}
			w.ApplyDefaults(t.Context())
			var got []string
			for _, s := range target.settings {
				got = append(got, fmt.Sprint(s.ResourceMetrics, " ", s.Kubelet.TLS))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("whether resource metrics are collected, and kubeletTLS.mode (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRetirement: while an APIService of a group is registered, it is served by the settings before.
func TestRetirement(t *testing.T) {
	target := &fakeTarget{}
	w := &Watcher{target: target.target()}
	before := backendWith(1, &v1alpha1.ResourceMetricsSpec{Scrape: v1alpha1.ScrapeSpec{Interval: duration(10 * time.Second)}})
	before.Spec.Sources = []v1alpha1.SourceSpec{{Name: "gone", Prometheus: &v1alpha1.PrometheusSource{URL: "https://prometheus.example"}}}
	before.Spec.CustomMetrics, before.Spec.ExternalMetrics = &v1alpha1.CustomMetricsSpec{}, &v1alpha1.ExternalMetricsSpec{}
	w.apply(t.Context(), "test", before)
	for _, registered := range [][]string{{"v1beta1.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"}, {"v1beta1.external.metrics.k8s.io"}, nil} {
		after := backendWith(2, nil)
		for _, name := range registered {
			after.Status.APIServices = append(after.Status.APIServices, v1alpha1.APIServiceStatus{Name: name})
		}
		w.apply(t.Context(), "test", after)
	}
	var got []string
	for _, s := range target.settings {
		got = append(got, fmt.Sprintf("resource metrics %t each %s, custom %t, external %t, %d sources",
			s.ResourceMetrics, s.Kubelet.Interval, s.Spec.CustomMetrics != nil, s.Spec.ExternalMetrics != nil, len(s.Spec.Sources)))
	}
	want := []string{
		"resource metrics true each 10s, custom true, external true, 1 sources",
		"resource metrics true each 10s, custom false, external true, 1 sources",
		"resource metrics false each 15s, custom false, external true, 1 sources",
		"resource metrics false each 15s, custom false, external false, 0 sources",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

// TestRetainedSources: what a later change removes stays removed, and a section that is served by its settings before keeps
// the sources that went with it. A spec that is refused in between changes nothing of that.
func TestRetainedSources(t *testing.T) {
	target := &fakeTarget{}
	w := &Watcher{target: target.target()}
	registered := []v1alpha1.APIServiceStatus{{Name: "v1beta1.external.metrics.k8s.io"}, {Name: "v1beta2.custom.metrics.k8s.io"}}
	for i, change := range []struct {
		custom, external, refused bool
		sources                   []string
	}{
		{true, true, false, []string{"a", "b", "c"}},
		{true, false, true, []string{"a", "b", "c"}},
		{true, false, false, []string{"b", "c"}}, // a went with external metrics
		{true, false, false, []string{"b"}},      // c is deleted
		{false, false, true, []string{"b"}},
		{false, false, false, nil}, // b went with custom metrics
		{false, true, false, nil},
	} {
		if target.err = nil; change.refused {
			target.err = errors.New("refused")
		}
		backend := backendWith(int64(i+1), nil)
		backend.Status.APIServices = registered
		if change.custom {
			backend.Spec.CustomMetrics = &v1alpha1.CustomMetricsSpec{}
		}
		if change.external {
			backend.Spec.ExternalMetrics = &v1alpha1.ExternalMetricsSpec{}
		}
		for _, name := range change.sources {
			backend.Spec.Sources = append(backend.Spec.Sources, v1alpha1.SourceSpec{Name: name, Prometheus: &v1alpha1.PrometheusSource{URL: "https://prometheus.example"}})
		}
		w.apply(t.Context(), "test", backend)
	}
	var got [][]string
	for _, s := range target.settings {
		var names []string
		for _, source := range s.Spec.Sources {
			names = append(names, source.Name)
		}
		slices.Sort(names)
		got = append(got, names)
	}
	if diff := cmp.Diff([][]string{{"a", "b", "c"}, {"a", "b", "c"}, {"a", "b"}, {"a", "b"}, {"a", "b"}}, got); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
}

// TestWatcherApplied: only objects in the cluster are waited for.
func TestWatcherApplied(t *testing.T) {
	tests := map[string]struct {
		backend string
		file    *fileWatcher
		// read and declared are what the watcher waits for before it runs.
		read, declared string
	}{
		"neither": {},
		"file":    {backend: "cluster", file: &fileWatcher{}, declared: "the file is not applied yet"},
		"cluster": {
			backend: "cluster", read: "no answer from kube-apiserver yet",
			declared: "ExternalMetricsPolicies: no answer from kube-apiserver yet",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w, err := NewWatcher(&rest.Config{Host: "127.0.0.1:1"}, tc.backend, &Initial{file: tc.file}, Target{})
			if err != nil {
				t.Fatal(err)
			}
			for what, check := range map[string]struct {
				wait func() error
				want string
			}{"settings": {w.BackendApplied, tc.read}, "declarations": {w.DeclaredApplied, tc.declared}} {
				got := ""
				if err := check.wait(); err != nil {
					got = err.Error()
				}
				if got != check.want {
					t.Errorf("waits for %s: %q, want %q", what, got, check.want)
				}
			}
		})
	}
}
