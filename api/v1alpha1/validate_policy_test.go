// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A rule that cannot be read never allows anything.
func TestCompilePolicyRule(t *testing.T) {
	all := &metav1.LabelSelector{}
	tests := map[string]struct {
		rule ExternalMetricsPolicyRule
		// matches and others are names that the rule decides for, and that it does not.
		matches, others []string
		allows          bool
		err             string
	}{
		"deny":          {rule: ExternalMetricsPolicyRule{Metric: "secret_.*", Deny: true}, matches: []string{"secret_", "secret_a"}, others: []string{"a_secret_b", ""}},
		"allow":         {rule: ExternalMetricsPolicyRule{Metric: "a|ab", Selector: all}, matches: []string{"a", "ab"}, others: []string{"abc", "ba"}, allows: true},
		"an open quote": {rule: ExternalMetricsPolicyRule{Metric: `\Qa.b`, Deny: true}, matches: []string{"a.b"}, others: []string{"axb"}},
		"no regexp":     {rule: ExternalMetricsPolicyRule{Metric: "(", Selector: all}, matches: []string{"anything", ""}, err: "metric is no regular expression"},
		"two groups":    {rule: ExternalMetricsPolicyRule{Metric: "a)(b", Selector: all}, matches: []string{"anything"}, err: "metric is no regular expression"},
		"empty":         {rule: ExternalMetricsPolicyRule{Selector: all}, matches: []string{"anything"}, err: "metric is empty"},
		"neither":       {rule: ExternalMetricsPolicyRule{Metric: "a"}, matches: []string{"a"}, others: []string{"b"}, err: "neither selector nor deny"},
		"both":          {rule: ExternalMetricsPolicyRule{Metric: "a", Deny: true, Selector: all}, matches: []string{"a"}, err: "both selector and deny"},
		"no selector": {
			rule: ExternalMetricsPolicyRule{Metric: "a", Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Foo"}}}}, matches: []string{"a"},
			err: "selector: ",
		},
		"no label": {rule: ExternalMetricsPolicyRule{Metric: "a", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}}, matches: []string{"a"}, err: "selector: "},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			metric, selector, err := tc.rule.Compile()
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			for _, name := range tc.matches {
				if !MatchesWhole(metric, name) {
					t.Errorf("does not decide for %q", name)
				}
			}
			for _, name := range tc.others {
				if MatchesWhole(metric, name) {
					t.Errorf("decides for %q", name)
				}
			}
			if (selector != nil) != tc.allows {
				t.Errorf("selector %v, allows = %t is wanted", selector, tc.allows)
			}
			errs := ValidateExternalMetricsPolicy(&ExternalMetricsPolicySpec{Rules: []ExternalMetricsPolicyRule{{Metric: "b", Deny: true}, tc.rule}})
			if (len(errs) == 0) != (tc.err == "") || len(errs) > 0 && errs[0].Field != "spec.rules[1]" {
				t.Errorf("a policy with this rule: %v", errs)
			}
		})
	}
}
