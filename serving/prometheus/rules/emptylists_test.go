// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// TestEmptyLists: a list without matchers or labels leaves no comma that PromQL does not allow, and
// the rule has no remark because of it.
func TestEmptyLists(t *testing.T) {
	for name, test := range map[string]struct{ rule, selector, want, tenant string }{
		"matchers first": {
			`{seriesQuery: lag, resources: {namespaced: false}, metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>, queue=~"orders_.*"}) by (<<.GroupBy>>)'}`,
			"", `sum(lag{ queue=~"orders_.*"}) by ()`, "",
		},
		"matchers first, and a selector": {
			`{seriesQuery: lag, resources: {namespaced: false}, metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>, queue=~"orders_.*"}) by (<<.GroupBy>>)'}`,
			"name=a", `sum(lag{name="a", queue=~"orders_.*"}) by ()`, "",
		},
		"labels first": {
			`{seriesQuery: lag, metricsQuery: 'histogram_quantile(0.9, sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>, le))'}`,
			"", `histogram_quantile(0.9, sum(rate(lag{namespace="shop"}[5m])) by ( le))`, "shop",
		},
		"the namespace is not used": {
			`{seriesQuery: lag, metricsQuery: 'sum(lag{<<range $l, $v := .LabelValuesByName>><<if ne $l "namespace">><<$l>>="<<$v>>",<<end>><<end>>}) by (<<.GroupBy>>, name)'}`,
			"name=a", `sum(lag{name="a",}) by ( name)`, "",
		},
		"a value with a dot": {
			`{seriesQuery: lag, metricsQuery: 'sum(lag{<<.LabelMatchers>>}) by (<<.GroupBy>>, name)'}`,
			"name=a.b", `sum(lag{name="a.b",namespace="shop"}) by ( name)`, "shop",
		},
		"commas of the author's": {
			`{seriesQuery: lag, resources: {namespaced: false}, metricsQuery: 'label_join(lag{<<.LabelMatchers>>,name="{,"}, "x", ",,", "name")'}`,
			"", `label_join(lag{name="{,"}, "x", ",,", "name")`, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCatalog(t, parseBackend(t, true, test.rule), seriesOf("lag", "namespace", "name"))
			if h := c.Health(); len(h.Rules) != 0 {
				t.Errorf("health %+v", h.Rules)
			}
			mq, err := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "lag", Series: selector(t, test.selector)})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{test.want, test.tenant}, []string{mq.Query.Expression, mq.Query.Tenant}); diff != "" {
				t.Errorf("query and tenant (-want +got):\n%s", diff)
			}
		})
	}
}
