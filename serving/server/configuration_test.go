// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet"
)

// recordedSettings is what the fakes of a configuration were told.
type recordedSettings struct {
	Intervals []time.Duration
	Ages      []time.Duration
}

// selectors are those of the nodes whose kubelets are asked.
type selectors struct {
	fakeTargets
	// everything says, of each, that it selects all nodes.
	everything []bool
}

func (f *selectors) Apply(s kubelet.Settings) error {
	f.everything = append(f.everything, s.NodeSelector.Empty())
	return f.fakeTargets.Apply(s)
}

type fakeTargets struct {
	recordedSettings
	err error
}

func (f *fakeTargets) Apply(s kubelet.Settings) error {
	if f.err != nil {
		return f.err
	}
	f.Intervals = append(f.Intervals, s.Interval)
	return nil
}

func (f *fakeTargets) SetMaxAge(d time.Duration) { f.Ages = append(f.Ages, d) }

// fakeWatches records what it was told.
type fakeWatches struct{ settings []watchSettings }

func (f *fakeWatches) Apply(s watchSettings) { f.settings = append(f.settings, s) }

// fakeValueTarget counts what it was told.
type fakeValueTarget struct {
	applied int
	invalid field.ErrorList
	byRules bool
}

func (f *fakeValueTarget) ruled() bool { return f.byRules }

func (f *fakeValueTarget) apply(_ context.Context, _ *v1alpha1.MetricsBackendSpec, invalid field.ErrorList) {
	f.applied++
	f.invalid = invalid
}

func backendWith(generation int64, rm *v1alpha1.ResourceMetricsSpec) *v1alpha1.MetricsBackend {
	return &v1alpha1.MetricsBackend{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster", Generation: generation},
		Spec:       v1alpha1.MetricsBackendSpec{ResourceMetrics: rm},
	}
}

func TestConfigurationKeepsTheLastGoodSettings(t *testing.T) {
	fast := &v1alpha1.ResourceMetricsSpec{Scrape: v1alpha1.ScrapeSpec{Interval: duration(10 * time.Second)}}
	bad := &v1alpha1.ResourceMetricsSpec{Scrape: v1alpha1.ScrapeSpec{MaxBodySize: "much"}}
	tests := map[string]struct {
		applied        []*v1alpha1.MetricsBackend
		err            error
		want           recordedSettings
		wantGeneration int64
	}{
		"nothing read": {},
		"one": {
			applied:        []*v1alpha1.MetricsBackend{backendWith(1, fast)},
			want:           recordedSettings{Intervals: []time.Duration{10 * time.Second}, Ages: []time.Duration{90 * time.Second}},
			wantGeneration: 1,
		},
		"a bad one after a good one changes nothing": {
			applied:        []*v1alpha1.MetricsBackend{backendWith(1, fast), backendWith(2, bad), backendWith(3, bad)},
			want:           recordedSettings{Intervals: []time.Duration{10 * time.Second}, Ages: []time.Duration{90 * time.Second}},
			wantGeneration: 1,
		},
		"a good one after a bad one": {
			applied:        []*v1alpha1.MetricsBackend{backendWith(1, bad), backendWith(2, fast)},
			want:           recordedSettings{Intervals: []time.Duration{10 * time.Second}, Ages: []time.Duration{90 * time.Second}},
			wantGeneration: 2,
		},
		"the source refuses: the store keeps its age, too": {
			applied: []*v1alpha1.MetricsBackend{backendWith(1, fast)},
			err:     errors.New("refused"),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			targets := &fakeTargets{err: tc.err}
			watches := &fakeWatches{}
			values := &fakeValueTarget{}
			c := &configuration{source: targets, store: targets, watches: watches, values: values}
			for _, backend := range tc.applied {
				c.apply(t.Context(), "test", backend)
			}
			if diff := cmp.Diff(tc.want, targets.recordedSettings); diff != "" {
				t.Errorf("settings in force (-want +got):\n%s", diff)
			}
			if got := len(watches.settings); got != len(tc.want.Ages) {
				t.Errorf("settings of watches were changed %d times, want %d", got, len(tc.want.Ages))
			}
			if values.applied != len(tc.want.Ages) {
				t.Errorf("sources and rules were changed %d times, want %d", values.applied, len(tc.want.Ages))
			}
			if got := c.observedGeneration(); got != tc.wantGeneration {
				t.Errorf("observed generation %d, want %d", got, tc.wantGeneration)
			}
		})
	}
}

// TestBadPartsStopNothingElse: what is judged by itself does not keep other settings
// from being in force.
func TestBadPartsStopNothingElse(t *testing.T) {
	backend := backendWith(1, &v1alpha1.ResourceMetricsSpec{Scrape: v1alpha1.ScrapeSpec{Interval: duration(10 * time.Second)}})
	backend.Spec.Sources = []v1alpha1.SourceSpec{
		{Name: "good", Prometheus: &v1alpha1.PrometheusSource{URL: "https://prometheus.example"}},
		{Name: "bad", Prometheus: &v1alpha1.PrometheusSource{URL: "gopher://prometheus.example"}},
		{Name: "worse"},
	}
	backend.Spec.CustomMetrics = &v1alpha1.CustomMetricsSpec{Versions: []v1alpha1.CustomMetricsVersion{"v7"}}
	targets, values := &fakeTargets{}, &fakeValueTarget{}
	c := &configuration{source: targets, store: targets, watches: &fakeWatches{}, values: values}
	c.apply(t.Context(), "test", backend)
	if c.observedGeneration() != 1 || values.applied != 1 {
		t.Fatalf("generation %d is in force, and values were changed %d times", c.observedGeneration(), values.applied)
	}
	var fields []string
	for _, err := range values.invalid {
		fields = append(fields, err.Field)
	}
	want := []string{"spec.customMetrics.versions", "spec.sources[1].prometheus.url", "spec.sources[2].prometheus"}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("invalid (-want +got):\n%s", diff)
	}
}

// TestRulesThatCannotBeUsed leave the figures as they are: those of kubelets, or of the
// rules before.
func TestRulesThatCannotBeUsed(t *testing.T) {
	bad := ruledSpec()
	bad.ResourceMetrics.Rules.CPU.NodeQuery = "<<"
	for name, test := range map[string]struct {
		spec  *v1alpha1.MetricsBackendSpec
		ruled bool
		// kubelets are those of all nodes, or none.
		kubelets bool
	}{
		"bad ones after kubelets":  {bad, false, true},
		"bad ones after good ones": {bad, true, false},
		"good ones":                {ruledSpec(), false, false},
		"none any more":            {&v1alpha1.MetricsBackendSpec{}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			targets := &selectors{}
			c := &configuration{source: targets, store: targets, watches: &fakeWatches{}, values: &fakeValueTarget{byRules: test.ruled}}
			c.apply(t.Context(), "test", &v1alpha1.MetricsBackend{Spec: *test.spec})
			if len(targets.everything) != 1 || targets.everything[0] != test.kubelets {
				t.Errorf("all kubelets are asked: %t, want %t", targets.everything, test.kubelets)
			}
		})
	}
}

func TestWithin(t *testing.T) {
	for path, want := range map[string]bool{
		"spec.sources": true, "spec.sources[1].name": true, "spec.sources.x": true, "spec.sourcesOfTruth": false, "spec": false,
	} {
		if got := within(path, "spec.sources"); got != want {
			t.Errorf("%s is within spec.sources: %t, want %t", path, got, want)
		}
	}
}
