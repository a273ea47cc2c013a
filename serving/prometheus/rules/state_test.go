// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// What cannot be compiled is told apart from what waits for series: only the former
// needs another spec.
func TestRuleStates(t *testing.T) {
	good := v1alpha1.MetricRule{
		SeriesQuery:  `requests_total{namespace!="",pod!=""}`,
		Resources:    v1alpha1.RuleResources{Template: "<<.Resource>>"},
		MetricsQuery: `sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)`,
	}
	typo, sourceless := good, good
	typo.MetricsQuery = `sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>`
	sourceless.Source = "no-such-source"
	c := newCatalog(t, backend([]v1alpha1.MetricRule{good, typo, sourceless}, nil))
	h := c.Health()
	got := map[string]v1alpha1.RuleState{}
	for _, rule := range h.Rules {
		got[rule.Path] = rule.State
	}
	want := map[string]v1alpha1.RuleState{
		"spec.customMetrics.rules[0]": v1alpha1.RuleWarning,
		"spec.customMetrics.rules[1]": v1alpha1.RuleInvalid,
		"spec.customMetrics.rules[2]": v1alpha1.RuleInvalid,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%+v", diff, h.Rules)
	}
	if h.Failing != 2 || h.Count != 3 {
		t.Errorf("%d of %d fail", h.Failing, h.Count)
	}
}
