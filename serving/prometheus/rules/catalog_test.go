// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// A rule in the language of prometheus-adapter makes a metric, and one query serves
// all of a namespace's autoscalers.
func TestARuleMakesAMetric(t *testing.T) {
	c := newCatalog(t, backend([]v1alpha1.MetricRule{{
		SeriesQuery:  `requests_total{kubernetes_namespace!="",kubernetes_pod_name!=""}`,
		Resources:    v1alpha1.RuleResources{Overrides: map[string]v1alpha1.RuleResource{"kubernetes_namespace": {Resource: "namespace"}, "kubernetes_pod_name": {Resource: "pod"}}},
		Name:         v1alpha1.RuleName{Matches: "^(.*)_total", As: "${1}_per_second"},
		MetricsQuery: `sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)`,
		Interval:     "30s",
	}}, nil), seriesOf("requests_total", "kubernetes_namespace", "kubernetes_pod_name", "method"))

	mq, metric, err := c.ObjectQuery(pods("shop", "requests_per_second", "web-0"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(query.MetricQuery{
		Query: query.Query{
			Source:     "prometheus",
			Expression: `sum(rate(requests_total{kubernetes_namespace="shop",kubernetes_pod_name!=""}[2m])) by (kubernetes_pod_name)`,
			Interval:   30 * time.Second,
			Tenant:     "shop",
		},
		Origin: "spec.customMetrics.rules[0]", Window: 2 * time.Minute, ObjectLabel: "kubernetes_pod_name", Duplicates: v1alpha1.DuplicatesReject,
	}, mq, cmpopts.IgnoreFields(query.MetricQuery{}, "Problems")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if metric.Kind.Kind != "Pod" || !metric.Namespaced || metric.Name != "requests_per_second" {
		t.Errorf("it describes %+v", metric)
	}
	if h := c.Health(); len(h.Rules) != 0 || h.Count != 1 || h.CustomMetrics != 2 {
		t.Errorf("health %+v", h)
	}
	other, _, err := c.ObjectQuery(pods("shop", "requests_per_second", "web-1", "web-2"))
	if err != nil || other.Query != mq.Query {
		t.Errorf("other pods ask %v, %v", other.Query, err)
	}
}
