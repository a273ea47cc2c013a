// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// listedMetrics are own metrics that discovery lists.
type listedMetrics struct {
	ownMetrics
	external []string
	custom   []query.ObjectMetric
}

func (l *listedMetrics) ExternalMetrics(int) ([]string, int) { return l.external, len(l.external) }

func (l *listedMetrics) ObjectMetrics(int) ([]query.ObjectMetric, int) {
	return l.custom, len(l.custom)
}

// Own metrics come first, then what the sources of routes list and a route leads to. The slice is the same one while
// nothing changes.
func TestDiscovery(t *testing.T) {
	long := strings.Repeat("x", 3*44)
	keda := v1alpha1.MetricRoute{Source: "keda"}
	tests := map[string]struct {
		routes  []v1alpha1.MetricRoute
		listed  map[string][]string
		limit   int
		want    []string
		total   int
		problem string
	}{
		"without routes":    {listed: map[string][]string{"keda": {"s0"}}, want: []string{"own_a"}, total: 1},
		"all of a source":   {routes: []v1alpha1.MetricRoute{keda}, listed: map[string][]string{"keda": {"externalmetrics", `cloud\|queue`}}, want: []string{"own_a", "externalmetrics", "cloud/queue"}, total: 3},
		"by names":          {routes: []v1alpha1.MetricRoute{{Source: "keda", Match: v1alpha1.RouteMatch{Metrics: []string{"S1"}}}}, listed: map[string][]string{"keda": {"s0", "s1", ""}}, want: []string{"own_a", "s1"}, total: 2},
		"never reached":     {routes: []v1alpha1.MetricRoute{keda, {Source: "datadog"}}, listed: map[string][]string{"datadog": {"d"}}, want: []string{"own_a"}, total: 1, problem: "routes[1] Unreachable"},
		"of two sources":    {routes: []v1alpha1.MetricRoute{{Source: "datadog", Match: v1alpha1.RouteMatch{MetricRegexp: "d.*"}}, keda}, listed: map[string][]string{"keda": {"d1", "s1"}, "datadog": {"d1", "s2"}}, want: []string{"own_a", "d1", "s1"}, total: 3},
		"also an own one":   {routes: []v1alpha1.MetricRoute{keda}, listed: map[string][]string{"keda": {"OWN_A", "s1"}}, want: []string{"own_a", "s1"}, total: 2, problem: "routes[0] Collision"},
		"beyond the limit":  {routes: []v1alpha1.MetricRoute{keda}, listed: map[string][]string{"keda": {"s1", "s2"}}, limit: 2, want: []string{"own_a", "s1"}, total: 3},
		"a long name":       {routes: []v1alpha1.MetricRoute{keda}, listed: map[string][]string{"keda": {long, "s2"}}, limit: 3, want: []string{"own_a"}, total: 3},
		"nothing is listed": {routes: []v1alpha1.MetricRoute{keda}, want: []string{"own_a"}, total: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.limit == 0 {
				test.limit = 100
			}
			r := NewRouter(&listedMetrics{external: []string{"own_a"}}, func(source string) (all []metav1.APIResource) {
				for _, name := range test.listed[source] {
					all = append(all, metav1.APIResource{Name: name})
				}
				return all
			})
			r.Apply(&v1alpha1.MetricsBackendSpec{Sources: sources, ExternalMetrics: &v1alpha1.ExternalMetricsSpec{Routes: test.routes}})
			got, total := r.ExternalMetrics(test.limit)
			if diff := cmp.Diff(test.want, got); diff != "" || total != test.total {
				t.Errorf("%d metrics, want %d (-want +got):\n%s", total, test.total, diff)
			}
			if again, _ := r.ExternalMetrics(test.limit); &again[0] != &got[0] {
				t.Error("another slice has the same")
			}
			problems, count, invalid := r.Health()
			var described string
			for _, p := range problems {
				described += strings.TrimPrefix(p.Path, "spec.externalMetrics.") + " " + p.Reason
			}
			if described != test.problem || count != len(test.routes) || invalid != 0 {
				t.Errorf("problems %q of %d routes, %d invalid, want %q of %d", described, count, invalid, test.problem, len(test.routes))
			}
		})
	}
}

// Custom metrics are listed with their resources; what names none is left out.
func TestDiscoveryOfObjects(t *testing.T) {
	own := query.ObjectMetric{Resource: schema.GroupResource{Resource: "pods"}, Namespaced: true, Name: "hits"}
	r := NewRouter(&listedMetrics{custom: []query.ObjectMetric{own}}, func(string) []metav1.APIResource {
		return []metav1.APIResource{{Name: "pods/hits", Namespaced: true}, {Name: "ingresses.networking.k8s.io/load", Namespaced: true}, {Name: "nodes/heat"}, {Name: "custommetrics"}}
	})
	r.Apply(&v1alpha1.MetricsBackendSpec{Sources: sources, CustomMetrics: &v1alpha1.CustomMetricsSpec{Routes: []v1alpha1.MetricRoute{{Source: "adapter"}}}})
	all, total := r.ObjectMetrics(100)
	want := []query.ObjectMetric{
		own,
		{Resource: schema.GroupResource{Group: "networking.k8s.io", Resource: "ingresses"}, Namespaced: true, Name: "load"},
		{Resource: schema.GroupResource{Resource: "nodes"}, Name: "heat"},
	}
	if diff := cmp.Diff(want, all); diff != "" || total != 3 {
		t.Errorf("%d metrics (-want +got):\n%s", total, diff)
	}
	if problems, _, _ := r.Health(); len(problems) != 1 || problems[0].Reason != ReasonCollision {
		t.Errorf("problems: %s", fmt.Sprint(problems))
	}
}
