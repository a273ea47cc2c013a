// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// TestDefines: a metric is defined by what declares it in the namespace, and by a rule, be it that it has no series now,
// or that what declares it is not in effect.
func TestDefines(t *testing.T) {
	for _, external := range []bool{true, false} {
		const resources = `resources: {template: <<.Resource>>}`
		c := newCatalog(t, parseBackend(t, external, `{seriesQuery: hits, `+resources+`}`, `{seriesQuery: lag, `+resources+`}`, `{seriesQuery: never, `+resources+`}`, `{seriesQuery: bad, name: {matches: "("}, `+resources+`}`))
		for _, s := range c.Selections() {
			found := series.Found{Time: ended}
			if s.Selector != "never" {
				found.Series = []series.Series{seriesOf(s.Selector, "namespace", "pod")}
			}
			c.SetFound(s, found)
			if s.Selector != "hits" {
				c.SetFound(s, series.Found{Time: later, Ended: ended})
			}
		}
		c.Declare([]*v1alpha1.CustomMetric{customMetric("shop", "depth", "max by (pod) (depth)"), customMetric("shop", "broken", "max(")},
			[]*v1alpha1.ExternalMetric{externalMetric("shop", "depth", "depth"), externalMetric("shop", "broken", "max(")})
		got := map[string]bool{}
		for _, metric := range []string{"hits", "lag", "never", "bad", "depth", "broken", "other"} {
			for _, namespace := range []string{"shop", "bank"} {
				if external {
					got[namespace+" "+metric] = c.DefinesExternalMetric(namespace, metric)
				} else {
					got[namespace+" "+metric] = c.DefinesObjectMetric(pods(namespace, metric))
				}
			}
		}
		want := map[string]bool{
			"shop hits": true, "bank hits": true, "shop lag": true, "bank lag": true, "shop never": true, "bank never": true, "shop bad": false, "bank bad": false,
			"shop depth": true, "bank depth": false, "shop broken": true, "bank broken": false, "shop other": false, "bank other": false,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("external: %t (-want +got):\n%s", external, diff)
		}
		unknown := query.ObjectRequest{Resource: schema.GroupResource{Resource: "unknowns"}, Namespace: "shop", Metric: "hits"}
		services := query.ObjectRequest{Resource: schema.GroupResource{Resource: "services"}, Namespace: "shop", Metric: "hits"}
		if c.DefinesObjectMetric(unknown) || c.DefinesObjectMetric(services) {
			t.Error("a metric of other objects is defined")
		}
	}
}
