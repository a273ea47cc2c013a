// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/config"
)

// TestInvalidParts: rules, routes, sources and declared metrics that cannot be used are logged once per
// change, counted, and named to clients that ask for a metric.
func TestInvalidParts(t *testing.T) {
	registerMetrics()
	var mu sync.Mutex
	var lines []string
	logger := funcr.New(func(_, args string) {
		if strings.Contains(args, `"path"=`) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, args)
		}
	}, funcr.Options{})
	logged := func() []string {
		mu.Lock()
		defer mu.Unlock()
		all := slices.Sorted(slices.Values(lines))
		lines = nil
		return all
	}
	p := newMetricPipeline(&noResources{}, config.NewReferences(fake.NewClientset(), "backend", nil),
		samplestore.NewStore(clock.RealClock{}, time.Minute), fakeKubelets{}, nil, clock.RealClock{}, 200)
	runUntilEnd(t, func(ctx context.Context) { p.run(klog.NewContext(ctx, logger)) })
	expect := func(counts map[string]float64, want ...string) {
		t.Helper()
		eventuallyTrue(t, "the parts are counted", func() bool { return cmp.Equal(invalidCounts(t), counts) })
		got := logged()
		if len(got) != len(want) {
			t.Fatalf("logged %q, want %q", got, want)
		}
		for i := range want {
			for part := range strings.SplitSeq(want[i], "|") {
				if !strings.Contains(got[i], part) {
					t.Errorf("logged %s, want it to have %s", got[i], part)
				}
			}
		}
	}
	explained := func(metric, want string) {
		t.Helper()
		_, err := p.catalog.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: metric})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("of %s: %v, want %q", metric, err, want)
		}
	}

	namespaced := false
	rule := v1alpha1.MetricRule{SeriesQuery: "queue_length", Resources: v1alpha1.RuleResources{Namespaced: &namespaced}}
	spec := v1alpha1.MetricsBackendSpec{
		Sources:         []v1alpha1.SourceSpec{prometheusAt("main", prometheusServer(t).URL), {Name: "broken"}},
		ExternalMetrics: &v1alpha1.ExternalMetricsSpec{Rules: []v1alpha1.MetricRule{rule, {SeriesQuery: "{"}}, Routes: []v1alpha1.MetricRoute{{Source: "main"}, {Own: &v1alpha1.OwnMetrics{}}}},
	}
	bad := &v1alpha1.ExternalMetric{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "lag"}}
	bad.Spec.Query = "sum("
	p.applied(t, spec)
	p.declare(nil, []*v1alpha1.ExternalMetric{bad})
	eventuallyTrue(t, "the valid rule makes its metric", func() bool { return cmp.Equal(p.externals(), []string{"queue_length"}) })
	all := []string{
		`"path"="ExternalMetric shop/lag"|"reason"="InvalidQuery"|"message"="spec.query: `,
		`"path"="spec.externalMetrics.routes[0]"|"reason"="UnknownSource"|"message"="the source \"main\" is not another implementation`,
		`"path"="spec.externalMetrics.rules[1]"|"reason"="InvalidSeriesQuery"|"message"="seriesQuery is not a selector`,
		`"path"="spec.sources[1]"|"reason"="InvalidSpec"|"message"="no kind of source is set`,
	}
	expect(map[string]float64{"rule": 1, "route": 1, "source": 1, "declared_metric": 1}, all...)
	explained("misses", `no rule makes the metric "misses", and no ExternalMetric does in namespace "shop"; without metrics because of errors: spec.externalMetrics.rules[1] (InvalidSeriesQuery)`)
	explained("lag", `; not in effect is ExternalMetric shop/lag (InvalidQuery: spec.query: `)

	// The same again is not logged, and a change is.
	p.applied(t, spec)
	spec.ExternalMetrics.Rules[1].SeriesQuery = ""
	p.applied(t, spec)
	bad = bad.DeepCopy()
	bad.Spec.Query = "1"
	p.declare(nil, []*v1alpha1.ExternalMetric{bad})
	expect(map[string]float64{"rule": 1, "route": 1, "source": 1, "declared_metric": 0}, `"path"="spec.externalMetrics.rules[1]"|"message"="seriesQuery is empty`)

	p.declare(nil, nil)
	p.applied(t, v1alpha1.MetricsBackendSpec{})
	expect(map[string]float64{"rule": 0, "route": 0, "source": 0, "declared_metric": 0})
}

// invalidCounts returns the values of the gauge by part.
func invalidCounts(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "metrics_backend_config_invalid_parts" {
			continue
		}
		for _, m := range f.GetMetric() {
			counts[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	return counts
}
