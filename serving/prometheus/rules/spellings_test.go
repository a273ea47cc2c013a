// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// namesOf is a catalog with a rule for each name, and metrics that the namespace shop declares.
func namesOf(t testing.TB, ofRules, declared []string) *Catalog {
	t.Helper()
	var rules []v1alpha1.MetricRule
	for _, name := range ofRules {
		rules = append(rules, v1alpha1.MetricRule{SeriesQuery: "x", Name: v1alpha1.RuleName{As: name}})
	}
	c := newCatalog(t, backend(nil, rules), seriesOf("x", "namespace"))
	var external []*v1alpha1.ExternalMetric
	for i, name := range declared {
		m := externalMetric("shop", fmt.Sprintf("m%d", i), "up")
		m.Spec.MetricName = name
		external = append(external, m)
	}
	c.Declare(nil, external)
	return c
}

// TestCapitalLetters: clients of client-go ask in lower case.
func TestCapitalLetters(t *testing.T) {
	tests := map[string]struct {
		rules, declared         []string
		namespace, asked, reads string
	}{
		"rule":                    {rules: []string{"QueueDepth"}, asked: "queuedepth", reads: "QueueDepth of spec.externalMetrics.rules[0]"},
		"declared":                {declared: []string{"QueueDepth"}, asked: "queuedepth", reads: "QueueDepth of ExternalMetric shop/m0"},
		"another case":            {declared: []string{"QueueDepth"}, asked: "QUEUEDEPTH", reads: "QueueDepth of ExternalMetric shop/m0"},
		"metric in lower case":    {rules: []string{"queuedepth"}, asked: "QueueDepth", reads: "queuedepth of spec.externalMetrics.rules[0]"},
		"rule and declared":       {rules: []string{"QueueDepth"}, declared: []string{"QueueDepth"}, asked: "queuedepth", reads: "QueueDepth of ExternalMetric shop/m0"},
		"slash":                   {rules: []string{"Cloud/Queue"}, asked: "cloud/queue", reads: "Cloud/Queue of spec.externalMetrics.rules[0]"},
		"exact":                   {rules: []string{"QueueDepth", "queuedepth"}, asked: "queuedepth", reads: "queuedepth of spec.externalMetrics.rules[1]"},
		"exact of two":            {rules: []string{"QueueDepth", "QUEUEDEPTH"}, asked: "QUEUEDEPTH", reads: "QUEUEDEPTH of spec.externalMetrics.rules[1]"},
		"exact before declared":   {rules: []string{"queuedepth"}, declared: []string{"QueueDepth"}, asked: "queuedepth", reads: "queuedepth of spec.externalMetrics.rules[0]"},
		"two of rules":            {rules: []string{"QueueDepth", "QUEUEDEPTH"}, asked: "queuedepth", reads: `NotFound: "QUEUEDEPTH" and "QueueDepth"`},
		"two declared":            {declared: []string{"QueueDepth", "QUEUEDEPTH", "qUEUEDEPTH"}, asked: "queuedepth", reads: `NotFound: "QUEUEDEPTH" and "QueueDepth"`},
		"rule and another":        {rules: []string{"QueueDepth"}, declared: []string{"QUEUEDEPTH"}, asked: "queuedepth", reads: `NotFound: "QUEUEDEPTH" and "QueueDepth"`},
		"two, one in lower case":  {rules: []string{"QueueDepth"}, declared: []string{"queuedepth"}, asked: "QUEUEDEPTH", reads: `NotFound: "QueueDepth" and "queuedepth"`},
		"other namespace":         {declared: []string{"QueueDepth"}, namespace: "bank", asked: "queuedepth", reads: `NotFound: no rule makes the metric "queuedepth"`},
		"others there":            {rules: []string{"QueueDepth"}, declared: []string{"QUEUEDEPTH"}, namespace: "bank", asked: "queuedepth", reads: "QueueDepth of spec.externalMetrics.rules[0]"},
		"other letters":           {rules: []string{"QueueDepths"}, asked: "queuedepth", reads: `NotFound: no rule makes the metric "queuedepth"`},
		"invalid declared metric": {declared: []string{"Queue?Depth"}, asked: "queue?depth", reads: `NotFound: no rule makes the metric "queue?depth"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := namesOf(t, test.rules, test.declared)
			r := query.ExternalRequest{Namespace: "shop"}
			if test.namespace != "" {
				r.Namespace = test.namespace
			}
			r.Metric = c.ExternalName(r.Namespace, test.asked)
			mq, err := c.ExternalQuery(r)
			got := r.Metric + " of " + mq.Origin
			if err != nil {
				got = fmt.Sprintf("%s: %v", apierrors.ReasonForError(err), err)
			}
			if wanted, errored := strings.CutPrefix(test.reads, "NotFound: "); got != test.reads && (!errored || !apierrors.IsNotFound(err) || !strings.Contains(got, wanted)) {
				t.Errorf("read %s, want %s", got, test.reads)
			}
		})
	}
}

// TestNamesFollowChanges compares the names of requests with all names that exist, while series come
// and go.
func TestNamesFollowChanges(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	spell := func() string {
		name := []byte("abc")
		for i := range name {
			if random.IntN(2) == 0 {
				name[i] -= 'a' - 'A'
			}
		}
		return string(name)
	}
	c := newCatalog(t, backend(nil, []v1alpha1.MetricRule{{SeriesQuery: "x"}}))
	for range 200 {
		var all []series.Series
		var external []*v1alpha1.ExternalMetric
		exist := map[string]bool{}
		for range random.IntN(3) {
			name := spell()
			if !exist[name] {
				all = append(all, seriesOf(name, "namespace"))
			}
			exist[name] = true
		}
		c.SetSeries(c.Selections()[0], all)
		for i := range random.IntN(3) {
			m := externalMetric("shop", fmt.Sprintf("m%d", i), "up")
			m.Generation, m.Spec.MetricName = 0, spell()
			external, exist[m.Spec.MetricName] = append(external, m), true
		}
		c.Declare(nil, external)
		asked := spell()
		want := asked
		if len(exist) == 1 {
			for want = range exist {
			}
		}
		if got := c.ExternalName("shop", asked); got != want {
			t.Fatalf("of %v %q means %q, want %q", exist, asked, got, want)
		}
	}
}

// TestNamesOfCustomMetrics: a custom metric that goes does not take the external one of its name along.
func TestNamesOfCustomMetrics(t *testing.T) {
	c := newCatalog(t, backend([]v1alpha1.MetricRule{{SeriesQuery: "custom", Resources: namespacePod, Name: v1alpha1.RuleName{As: "Depth"}}},
		[]v1alpha1.MetricRule{{SeriesQuery: "external", Name: v1alpha1.RuleName{As: "Depth"}}}), seriesOf("x", "namespace", "pod"))
	c.SetSeries(Selection{"prometheus", "custom"}, nil)
	if got := c.ExternalName("shop", "depth"); got != "Depth" {
		t.Errorf("depth means %q", got)
	}
}

// TestNamesThatDifferInCase: both are reported.
func TestNamesThatDifferInCase(t *testing.T) {
	c := namesOf(t, []string{"Depth", "lag", "depth", "Age", "Rate", "RATE"}, []string{"Lag", "LAG", "orders", "AGE", "Age"})
	var got []string
	for _, r := range c.Health().Rules {
		got = append(got, fmt.Sprintf("%s %s %s: %s", r.Path, r.State, r.Reason, r.Message))
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{
		"spec.externalMetrics.rules[0] Warning Collision: the metric Depth differs in case alone from depth of spec.externalMetrics.rules[2], and autoscalers, which ask in lower case, read depth: select other series, or give one of them another name",
		"spec.externalMetrics.rules[2] Warning Collision: the metric depth differs in case alone from Depth of spec.externalMetrics.rules[0], and autoscalers, which ask in lower case, read depth: select other series, or give one of them another name",
		"spec.externalMetrics.rules[4] Warning Collision: the metric Rate differs in case alone from RATE of spec.externalMetrics.rules[5], and autoscalers, which ask in lower case, read neither: select other series, or give one of them another name",
		"spec.externalMetrics.rules[5] Warning Collision: the metric RATE differs in case alone from Rate of spec.externalMetrics.rules[4], and autoscalers, which ask in lower case, read neither: select other series, or give one of them another name",
	}, got); diff != "" {
		t.Errorf("of rules (-want +got):\n%s", diff)
	}
	got = nil
	for _, d := range c.Declared() {
		if d.Reason != "" {
			t.Errorf("%s is not in effect: %s", d.Name, d.Message)
		}
		got = append(got, d.Remark)
	}
	differ := func(a, b string) string {
		return fmt.Sprintf("the external metrics %q and %q differ in case alone, and autoscalers ask in lower case: give one of them another name", a, b)
	}
	if diff := cmp.Diff([]string{differ("Lag", "LAG"), differ("LAG", "Lag"), "", differ("AGE", "Age"), `spec.externalMetrics.rules[3] makes the metric "Age" too, and does not count in this namespace; ` + differ("Age", "AGE")}, got); diff != "" {
		t.Errorf("of declared metrics (-want +got):\n%s", diff)
	}
}

// TestNamesThatDifferInCaseOfOneRule: the pair is one remark, not one from each side.
func TestNamesThatDifferInCaseOfOneRule(t *testing.T) {
	c := newCatalog(t, backend(nil, []v1alpha1.MetricRule{{SeriesQuery: `{__name__=~"(?i)lag"}`}}), seriesOf("lag", "namespace"), seriesOf("LAG", "namespace"))
	rules := c.Health().Rules
	if want := "the metric LAG differs in case alone from lag of spec.externalMetrics.rules[0], and autoscalers, which ask in lower case, read lag: select"; len(rules) != 1 || !strings.HasPrefix(rules[0].Message, want) {
		t.Errorf("remarks %+v", rules)
	}
}

// TestCustomMetricsKeepCase: client-go asks for them by their name as it is.
func TestCustomMetricsKeepCase(t *testing.T) {
	rules := []v1alpha1.MetricRule{{SeriesQuery: "x", Resources: namespacePod, Name: v1alpha1.RuleName{As: "Depth"}}, {SeriesQuery: "x", Resources: namespacePod, Name: v1alpha1.RuleName{As: "depth"}}}
	c := newCatalog(t, backend(rules, nil), seriesOf("x", "namespace", "pod"))
	if h := c.Health(); len(h.Rules) != 0 {
		t.Errorf("remarks: %+v", h.Rules)
	}
	if _, _, err := c.ObjectQuery(pods("shop", "DEPTH", "a")); !apierrors.IsNotFound(err) {
		t.Errorf("in another case: %v", err)
	}
}

// TestAllNamespaces: a metric that is the same in all namespaces is read for none.
func TestAllNamespaces(t *testing.T) {
	cluster := v1alpha1.RuleResources{Namespaced: ptr.To(false)}
	c := newCatalog(t, backend(nil, []v1alpha1.MetricRule{
		{SeriesQuery: "Broker", Resources: cluster, MetricsQuery: "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"},
		{SeriesQuery: "lag"},
	}))
	c.SetSeries(Selection{"prometheus", "Broker"}, []series.Series{seriesOf("Broker", "queue")})
	c.SetSeries(Selection{"prometheus", "lag"}, []series.Series{seriesOf("lag", "namespace")})
	c.Declare(nil, []*v1alpha1.ExternalMetric{externalMetric("shop", "orders", "up")})
	tests := map[string]struct{ asked, selector, expression, refused string }{
		"rule":               {asked: "Broker", selector: "queue=orders", expression: `sum(Broker{queue="orders"}) by ()`},
		"in lower case":      {asked: "broker", expression: `sum(Broker{}) by ()`},
		"rule of namespaces": {asked: "lag", refused: `spec.externalMetrics.rules[1] reads the metric "lag" from the namespace of the request: ask for it under one`},
		"declared":           {asked: "orders", refused: "what an ExternalMetric declares is asked under its namespace"},
		"none":               {asked: "latency", refused: `no rule makes the metric "latency"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			mq, err := c.ExternalQuery(query.ExternalRequest{Namespace: "*", Metric: c.ExternalName("*", test.asked), Series: selector(t, test.selector)})
			if test.refused != "" {
				if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), test.refused) {
					t.Errorf("error %v, want one with %q", err, test.refused)
				}
				return
			}
			if err != nil || mq.Query.Expression != test.expression || mq.Query.Tenant != "" || mq.Query.Requester != "*" {
				t.Errorf("%+v (%v), want %s", mq.Query, err, test.expression)
			}
		})
	}
	for _, namespace := range []string{"", "**", "*a", "shop|bank"} {
		if _, err := c.ExternalQuery(query.ExternalRequest{Namespace: namespace, Metric: "Broker"}); !apierrors.IsBadRequest(err) {
			t.Errorf("in the namespace %q: %v", namespace, err)
		}
	}
}
