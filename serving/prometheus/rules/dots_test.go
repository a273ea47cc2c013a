// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// A dot that a client selects by is a dot, whichever matcher a template puts it into: any other
// character in its place would be read past a policy, or added up with it.
func TestDotsInSelectors(t *testing.T) {
	const (
		each     = `sum(lag{<<range $l, $v := .LabelValuesByName>><<$l>>=~"<<$v>>",<<end>>})`
		pattern  = `sum(lag{env=~"<<index .LabelValuesByName "env">>"})`
		part     = `sum(lag{env=~"<<index .LabelValuesByName "env">>-[0-9]+",x=~"p.d"})`
		negated  = `sum(lag{<<.LabelMatchers>>}) - sum(lag{env!~"<<index .LabelValuesByName "env">>"})`
		equal    = `sum(lag{env="<<index .LabelValuesByName "env">>",x=~"p.d"})`
		matchers = `sum(lag{<<.LabelMatchers>>})`
		both     = `sum(lag{env=~"<<index .LabelValuesByName "env">>"}) / sum(all{env="<<index .LabelValuesByName "env">>"})`
		number   = `quantile(<<index .LabelValuesByName "quantile">>, lag{namespace="shop"})`
		numbers  = `quantile(<<index .LabelValuesByName "quantile">>, lag{q=~"<<index .LabelValuesByName "quantile">>"})`
		replaced = `label_replace(sum(lag) by (queue), "env", "1", "queue", "<<index .LabelValuesByName "env">>-.*")`
		named    = `label_replace(sum(lag) by (queue), "env", "<<index .LabelValuesByName "env">>", "queue", "<<index .LabelValuesByName "env">>-.*")`
		cut      = `sum(lag{env=~"<<printf "%.3s" (index .LabelValuesByName "env")>>.*"})`
		unknown  = `sum(lag{env=~"<<index .LabelValuesByName "env">>"}) default 0`
	)
	for name, test := range map[string]struct {
		metricsQuery, selector, want string // empty where it is refused
	}{
		"a regular expression":       {pattern, "env=p.d", `sum(lag{env=~"p[.]d"})`},
		"several dots":               {pattern, "env=p..d", `sum(lag{env=~"p[.][.]d"})`},
		"one of many labels":         {each, "env=p.d,x=a", `sum(lag{env=~"p[.]d",namespace=~"shop",x=~"a",})`},
		"two labels":                 {each, "env=p.d,x=a.b", `sum(lag{env=~"p[.]d",namespace=~"shop",x=~"a[.]b",})`},
		"part of one, with others":   {part, "env=p.d", `sum(lag{env=~"p[.]d-[0-9]+",x=~"p.d"})`},
		"one that must not match":    {negated, "env=p.d", `sum(lag{env="p.d",namespace="shop"}) - sum(lag{env!~"p[.]d"})`},
		"several values":             {pattern, "env in (a.b,c)", `sum(lag{env=~"a[.]b|c"})`},
		"no regular expression":      {equal, "env=p.d", `sum(lag{env="p.d",x=~"p.d"})`},
		"matchers":                   {matchers, "env=p.d", `sum(lag{env="p.d",namespace="shop"})`},
		"both":                       {both, "env=p.d", ""},
		"both, without a dot":        {both, "env=pd", `sum(lag{env=~"pd"}) / sum(all{env="pd"})`},
		"a number":                   {number, "quantile=0.9", `quantile(0.9, lag{namespace="shop"})`},
		"a number and a regexp":      {numbers, "quantile=0.9", ""},
		"of label_replace":           {replaced, "env=p.d", `label_replace(sum(lag) by (queue), "env", "1", "queue", "p[.]d-.*")`},
		"of label_replace, and text": {named, "env=p.d", ""},
		"cut in the middle":          {cut, "env=p..d", ""},
		"cut, without a dot":         {cut, "env=prod", `sum(lag{env=~"pro.*"})`},
		"another language":           {unknown, "env=p.d", ""},
		"another language, no dot":   {unknown, "env=pd", `sum(lag{env=~"pd"}) default 0`},
		"another language, matchers": {matchers + " default 0", "env=p.d", matchersOf("p.d") + " default 0"},
	} {
		t.Run(name, func(t *testing.T) {
			mq, err := external(t, test.metricsQuery).ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "lag", Series: selector(t, test.selector)})
			if got := mq.Query.Expression; got != test.want || apierrors.IsBadRequest(err) != (test.want == "") {
				t.Errorf("%q, %v", got, err)
			}
			if err != nil && !strings.Contains(err.Error(), "has a dot, and spec.externalMetrics.rules[0]") {
				t.Errorf("it says %v", err)
			}
		})
	}
}

func matchersOf(env string) string { return `sum(lag{env="` + env + `",namespace="shop"})` }

// Each label that a template may take for a regular expression is tried out, so there are not many.
func TestManyDots(t *testing.T) {
	selected := func(n int) query.ExternalRequest {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("label_%04d=a.b", i))
		}
		return query.ExternalRequest{Namespace: "shop", Metric: "lag", Series: selector(t, strings.Join(all, ","))}
	}
	each := external(t, `sum(lag{<<range $l, $v := .LabelValuesByName>><<$l>>=~"<<$v>>",<<end>>})`)
	if mq, err := each.ExternalQuery(selected(maxDotted)); err != nil || strings.Count(mq.Query.Expression, `=~"a[.]b"`) != maxDotted {
		t.Errorf("%q, %v", mq.Query.Expression, err)
	}
	if _, err := each.ExternalQuery(selected(maxDotted + 1)); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "by 9 labels whose value has a dot") {
		t.Errorf("of one too many: %v", err)
	}
	matchers := external(t, `sum(lag{<<.LabelMatchers>>})`)
	if mq, err := matchers.ExternalQuery(selected(1000)); err != nil || strings.Count(mq.Query.Expression, `="a.b"`) != 1000 {
		t.Errorf("of matchers: %d bytes, %v", len(mq.Query.Expression), err)
	}
}

// Nodes and services have dots in their names.
func TestDotsInNames(t *testing.T) {
	for metricsQuery, want := range map[string]string{
		`topk(1, lag{pod=~"<<.LabelValuesByName.pod>>"})`:                                     `topk(1, lag{pod=~"web[.]1"})`,
		`topk(1, lag{pod="<<.LabelValuesByName.pod>>"})`:                                      `topk(1, lag{pod="web.1"})`,
		`topk(1, lag{<<.LabelMatchers>>})`:                                                    `topk(1, lag{namespace="shop",pod="web.1"})`,
		`topk(1, lag{pod=~"<<.LabelValuesByName.pod>>"}) default 0`:                           `topk(1, lag{pod=~"web.1"}) default 0`,
		`topk(1, a{pod=~"<<.LabelValuesByName.pod>>"} / b{pod="<<.LabelValuesByName.pod>>"})`: `topk(1, a{pod=~"web.1"} / b{pod="web.1"})`,
	} {
		c := newCatalog(t, backend([]v1alpha1.MetricRule{{SeriesQuery: "lag", Resources: namespacePod, MetricsQuery: metricsQuery}}, nil), seriesOf("lag", "namespace", "pod"))
		mq, _, err := c.ObjectQuery(pods("shop", "lag", "web.1"))
		if got := mq.Query.Expression; got != want || err != nil {
			t.Errorf("%s asks %q, %v", metricsQuery, got, err)
		}
	}
}

// What is in a path may be anything, and must not become more than one namespace or object.
func TestNamesWithRegexpCharacters(t *testing.T) {
	c := external(t, `sum(lag{namespace=~"<<index .LabelValuesByName "namespace">>"})`)
	for _, namespace := range []string{"shop|bank", ".*", "sh.p", "shop.", "Shop", "[a-z]+", ""} {
		if mq, err := c.ExternalQuery(query.ExternalRequest{Namespace: namespace, Metric: "lag"}); !apierrors.IsBadRequest(err) {
			t.Errorf("in %q: %q, %v", namespace, mq.Query.Expression, err)
		}
	}
	c = newCatalog(t, backend([]v1alpha1.MetricRule{{SeriesQuery: "lag", Resources: namespacePod, MetricsQuery: `topk(1, lag{pod=~"<<.LabelValuesByName.pod>>"})`}}, nil), seriesOf("lag", "namespace", "pod"))
	for _, name := range []string{"a|b", "a*", "a+", "(a)", "[ab]", "a$", "a?"} {
		if mq, _, err := c.ObjectQuery(pods("shop", "lag", name)); !apierrors.IsBadRequest(err) {
			t.Errorf("of %q: %q, %v", name, mq.Query.Expression, err)
		}
	}
	if mq, _, err := c.ObjectQuery(pods("a|b", "lag", "a")); !apierrors.IsBadRequest(err) {
		t.Errorf("in a|b: %q, %v", mq.Query.Expression, err)
	}
}
