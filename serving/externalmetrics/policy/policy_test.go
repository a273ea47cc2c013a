// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func policyOf(name string, spec v1alpha1.ExternalMetricsPolicySpec) v1alpha1.ExternalMetricsPolicy {
	return v1alpha1.ExternalMetricsPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

func allow(metric string, matchLabels map[string]string) v1alpha1.ExternalMetricsPolicyRule {
	return v1alpha1.ExternalMetricsPolicyRule{Metric: metric, Selector: &metav1.LabelSelector{MatchLabels: matchLabels}}
}

func deny(metric string) v1alpha1.ExternalMetricsPolicyRule {
	return v1alpha1.ExternalMetricsPolicyRule{Metric: metric, Deny: true}
}

func TestCheck(t *testing.T) {
	type spec = v1alpha1.ExternalMetricsPolicySpec
	rules := func(r ...v1alpha1.ExternalMetricsPolicyRule) spec { return spec{Rules: r} }
	mine := map[string]string{"team": "a"}
	jane := &user.DefaultInfo{Name: "jane", Groups: []string{"developers"}}
	tests := map[string]struct {
		policies []v1alpha1.ExternalMetricsPolicy
		query    Query
		selector string
		// denied is the policy that denies; empty for none.
		denied string
		// says is what the denial mentions.
		says string
		// invalid is what Compile's error mentions; empty for none.
		invalid string
	}{
		"no policy":       {query: Query{Metric: "m"}},
		"denied":          {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(deny("queue_.*")))}, query: Query{Metric: "queue_length", Namespace: "shop"}, denied: "p", says: `in namespace "shop"`},
		"another metric":  {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(deny("queue_.*")))}, query: Query{Metric: "topic_length"}},
		"the whole name":  {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(deny("queue")))}, query: Query{Metric: "queue_length"}},
		"not a part":      {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(deny("length")))}, query: Query{Metric: "queue_length"}},
		"any alternative": {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(deny("queue|queue_length")))}, query: Query{Metric: "queue_length"}, denied: "p"},
		"an alternative is not half anchored": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(deny("a|b")))}, query: Query{Metric: "ab"},
		},
		"lines are no names":       {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(deny("(?m)^a$")))}, query: Query{Metric: "a\nb"}},
		"an open quotation":        {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(deny(`\Qa.b`)))}, query: Query{Metric: "a.b"}, denied: "p"},
		"a slash":                  {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(deny("cloud/.*")))}, query: Query{Metric: "cloud/queue/length"}, denied: "p"},
		"a subset":                 {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(allow(".*", mine)))}, query: Query{Metric: "m"}, selector: "team=a,queue=x"},
		"a denial in another case": {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(deny("Queue_.*")))}, query: Query{Metric: "queue_Length"}, denied: "p"},
		"an allowance in another case": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(allow("queue", nil), deny(".*")))}, query: Query{Metric: "Queue"}, denied: "p", says: "spec.rules[1]",
		},
		"a restriction in another case":           {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(allow("queue", mine), allow(".*", nil)))}, query: Query{Metric: "Queue"}, denied: "p", says: `a subset of "team=a"`},
		"a restriction in another case, selected": {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(allow("queue", mine), allow(".*", nil)))}, query: Query{Metric: "Queue"}, selector: "team=a"},
		"a letter that (?i) leaves out":           {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(deny("id")))}, query: Query{Metric: "\u0130d"}, denied: "p"},
		"the case is meant":                       {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(deny("(?-i)Queue")))}, query: Query{Metric: "queue"}},
		"letters that are excluded":               {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(allow("[^Q].*", nil), deny(".*")))}, query: Query{Metric: "queue"}},
		"no subset":                               {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(allow(".*", mine)))}, query: Query{Metric: "m"}, selector: "queue=x", denied: "p", says: `a subset of "team=a"`},
		"no selector":                             {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(allow(".*", mine)))}, query: Query{Metric: "m"}, denied: "p"},
		"the empty selector":                      {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(allow(".*", nil), deny(".*")))}, query: Query{Metric: "m"}},
		"the first match: deny":                   {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(deny("m"), allow(".*", nil)))}, query: Query{Metric: "m"}, denied: "p", says: "spec.rules[0]"},
		"the first match: allow":                  {policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(allow("m", nil), deny(".*")))}, query: Query{Metric: "m"}},
		"a later match": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(allow("m", nil), deny(".*")))}, query: Query{Metric: "n"}, denied: "p", says: "spec.rules[1]",
		},
		"all policies must allow": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("a", rules(allow(".*", nil))), policyOf("b", rules(deny(".*")))},
			query:    Query{Metric: "m"}, denied: "b",
		},
		"the first by name is told": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("b", rules(deny(".*"))), policyOf("a", rules(deny(".*")))},
			query:    Query{Metric: "m"}, denied: "a",
		},
		"another namespace": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", spec{Namespaces: []string{"shop"}, Rules: rules(deny(".*")).Rules})},
			query:    Query{Metric: "m", Namespace: "bank"},
		},
		"the namespace": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", spec{Namespaces: []string{"bank", "shop"}, Rules: rules(deny(".*")).Rules})},
			query:    Query{Metric: "m", Namespace: "shop"}, denied: "p",
		},
		"all namespaces": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", spec{Namespaces: []string{"bank"}, Rules: rules(deny(".*")).Rules})},
			query:    Query{Metric: "m", Namespace: "*"}, denied: "p",
		},
		"all namespaces, of which one restricts": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", spec{Namespaces: []string{"bank"}, Rules: rules(allow(".*", mine)).Rules}), policyOf("q", spec{Namespaces: []string{"shop"}, Rules: rules(allow(".*", nil)).Rules})},
			query:    Query{Metric: "m", Namespace: "*"}, selector: "queue=x", denied: "p",
		},
		"all namespaces, another user": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", spec{Namespaces: []string{"bank"}, Subjects: []v1alpha1.PolicySubject{{Kind: "User", Name: "joe"}}, Rules: rules(deny(".*")).Rules})},
			query:    Query{Metric: "m", Namespace: "*", User: jane},
		},
		"the user": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", spec{Subjects: []v1alpha1.PolicySubject{{Kind: "User", Name: "jane"}}, Rules: rules(deny(".*")).Rules})},
			query:    Query{Metric: "m", User: jane}, denied: "p",
		},
		"a group of the user": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", spec{Subjects: []v1alpha1.PolicySubject{{Kind: "User", Name: "joe"}, {Kind: "Group", Name: "developers"}}, Rules: rules(deny(".*")).Rules})},
			query:    Query{Metric: "m", User: jane}, denied: "p",
		},
		"a group of a user's name": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", spec{Subjects: []v1alpha1.PolicySubject{{Kind: "Group", Name: "jane"}, {Kind: "User", Name: "developers"}}, Rules: rules(deny(".*")).Rules})},
			query:    Query{Metric: "m", User: jane},
		},
		"nobody is known": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", spec{Subjects: []v1alpha1.PolicySubject{{Kind: "User", Name: "joe"}}, Rules: rules(deny(".*")).Rules})},
			query:    Query{Metric: "m"}, denied: "p",
		},
		"an expression that does not compile": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(allow("a", nil), deny("(")))},
			query:    Query{Metric: "m"}, denied: "p", says: "no regular expression", invalid: `ExternalMetricsPolicy "p": spec.rules[1]`,
		},
		"what is before an expression that does not compile": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(allow("a", nil), deny("(")))},
			query:    Query{Metric: "a"}, invalid: "missing closing )",
		},
		"what does not compile concerns its namespaces alone": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", spec{Namespaces: []string{"shop"}, Rules: rules(deny("(")).Rules})},
			query:    Query{Metric: "m", Namespace: "bank"}, invalid: "missing closing )",
		},
		"an empty expression": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(deny("")))}, query: Query{Metric: "m"}, denied: "p", says: "such as .*", invalid: "metric is empty",
		},
		"neither selector nor deny": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(v1alpha1.ExternalMetricsPolicyRule{Metric: "m"}, allow(".*", nil)))},
			query:    Query{Metric: "m"}, denied: "p", says: "neither selector nor deny", invalid: "spec.rules[0]",
		},
		"what is neither concerns its metrics alone": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(v1alpha1.ExternalMetricsPolicyRule{Metric: "m"}, allow(".*", nil)))},
			query:    Query{Metric: "n"}, invalid: "spec.rules[0]",
		},
		"both selector and deny": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(v1alpha1.ExternalMetricsPolicyRule{Metric: "m", Deny: true, Selector: &metav1.LabelSelector{}}))},
			query:    Query{Metric: "m"}, denied: "p", says: "both", invalid: "remove one",
		},
		"a selector that is none": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", rules(v1alpha1.ExternalMetricsPolicyRule{Metric: "m", Selector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Resembles", Values: []string{"b"}}},
			}}))},
			query: Query{Metric: "m"}, selector: "a=b", denied: "p", says: "Resembles", invalid: "selector",
		},
		"a kind of subject that is none": {
			policies: []v1alpha1.ExternalMetricsPolicy{policyOf("p", spec{Subjects: []v1alpha1.PolicySubject{{Kind: "Robot", Name: "r"}}, Rules: rules(deny(".*")).Rules})},
			query:    Query{Metric: "m", User: jane}, denied: "p", invalid: "applies to everybody",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := Compile(tc.policies)
			if (err == nil) != (tc.invalid == "") || err != nil && !strings.Contains(err.Error(), tc.invalid) {
				t.Errorf("Compile: %v, want mention of %q", err, tc.invalid)
			}
			if tc.selector != "" {
				tc.query.Selector = parse(t, tc.selector)
			}
			d := s.Check(tc.query)
			if d == nil {
				if tc.denied != "" {
					t.Fatalf("allowed, want denied by %q", tc.denied)
				}
				return
			}
			if d.Policy != tc.denied || !strings.Contains(d.Error(), tc.says) {
				t.Errorf("denied: %v; want by %q, mentioning %q", d, tc.denied, tc.says)
			}
		})
	}
}

func TestZeroSetAllows(t *testing.T) {
	if d := (&Set{}).Check(Query{Metric: "m"}); d != nil {
		t.Errorf("denied: %v", d)
	}
}

// FuzzCompile: whatever is written, a policy of one rule that is said to be sound
// decides by its whole expression, and one that is not denies.
func FuzzCompile(f *testing.F) {
	for _, seed := range [][2]string{{"a.*", "abc"}, {"(", "a"}, {"a|b", "ab"}, {`\Qa`, "a"}, {"", ""}, {"(?i)A", "a"}, {"a{1001}", "a"}, {"^a$", "a"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, expression, metric string) {
		s, err := Compile([]v1alpha1.ExternalMetricsPolicy{policyOf("p", v1alpha1.ExternalMetricsPolicySpec{Rules: []v1alpha1.ExternalMetricsPolicyRule{deny(expression)}})})
		d := s.Check(Query{Metric: metric})
		if err != nil && d == nil {
			t.Errorf("%q does not compile (%v), and allows %q", expression, err, metric)
		}
		if expression == metric && metric != "" && !strings.ContainsAny(metric, `\.+*?()|[]{}^$`) && d == nil {
			t.Errorf("%q does not match itself", metric)
		}
	})
}
