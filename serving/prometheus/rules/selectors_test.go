// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	promlabels "github.com/prometheus/prometheus/model/labels"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

func external(t testing.TB, metricsQuery string) *Catalog {
	return newCatalog(t, backend(nil, []v1alpha1.MetricRule{{SeriesQuery: "lag", MetricsQuery: metricsQuery}}), seriesOf("lag", "namespace", "env"))
}

// The values of labels say nothing of how they are compared: what would be answered
// with the opposite is refused, for objects too.
func TestNegatedSelectors(t *testing.T) {
	const (
		matchers = `max(<<.Series>>{<<.LabelMatchers>>}) by (env)`
		values   = `max(<<.Series>>{<<range $l, $v := .LabelValuesByName>><<$l>>=~"<<$v>>",<<end>>}) by (env)`
		one      = `max(<<.Series>>{env=~"<<index .LabelValuesByName "env">>"}) by (env)`
		fixed    = `max(<<.Series>>{env="prod"}) by (env)`
		larger   = `max(<<.Series>>{env=~"<<index .LabelValuesByName "env">>"}) by (env) default 0`
	)
	for _, test := range []struct {
		metricsQuery, selector string
		refused                bool
	}{
		{matchers, "env!=prod", false}, {matchers, "env notin (a,b)", false}, {matchers, "env", false}, {matchers, "!env", false},
		{values, "env!=prod", true}, {values, "env notin (a,b)", true}, {values, "env", true}, {values, "!env", true},
		{values, "env=prod", false}, {values, "env in (a,b)", false}, {values, "", false},
		{one, "env!=prod", true}, {one, "env=prod", false},
		{fixed, "env!=prod", true}, {fixed, "env=prod", false},
		{larger, "env!=prod", true}, {larger, "env=prod", false},
	} {
		_, err := external(t, test.metricsQuery).ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "lag", Series: selector(t, test.selector)})
		if apierrors.IsBadRequest(err) != test.refused || !test.refused && err != nil {
			t.Errorf("%s with %q: %v", test.metricsQuery, test.selector, err)
		}
	}
	c := newCatalog(t, backend([]v1alpha1.MetricRule{{SeriesQuery: "lag", Resources: namespacePod, MetricsQuery: values}}, nil), seriesOf("lag", "namespace", "pod"))
	r := pods("shop", "lag", "a")
	r.Series = selector(t, "env!=prod")
	if _, _, err := c.ObjectQuery(r); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `env!="prod"`) {
		t.Errorf("of objects: %v", err)
	}
}

// TestQuotedKeys: keys that PromQL quotes are known with the query, if it has them.
func TestQuotedKeys(t *testing.T) {
	for _, test := range []struct {
		metricsQuery, selector, expression string
		want                               []string
	}{
		{`max(lag{<<.LabelMatchers>>})`, "env=a", `max(lag{env="a",namespace="shop"})`, nil},
		{`max(lag{<<.LabelMatchers>>})`, "app.kubernetes.io/name=a,b-c,b-c!=d", `max(lag{"app.kubernetes.io/name"="a","b-c"!="","b-c"!="d",namespace="shop"})`, []string{"app.kubernetes.io/name", "b-c"}},
		{`max(lag{env="<<index .LabelValuesByName "env">>"})`, "env=a,b-c=d", `max(lag{env="a"})`, nil},
		{`max(lag{<<range $l, $v := .LabelValuesByName>><<$l>>="<<$v>>",<<end>>}) default 0`, "b.c=d", `max(lag{b.c="d",namespace="shop",}) default 0`, []string{"b.c"}},
	} {
		mq, err := external(t, test.metricsQuery).ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "lag", Series: selector(t, test.selector)})
		if err != nil || mq.Query.Expression != test.expression {
			t.Errorf("%s: %q, %v", test.selector, mq.Query.Expression, err)
		}
		if diff := cmp.Diff(test.want, mq.QuotedKeys); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.selector, diff)
		}
	}
}

// Where the query does not ask by the whole selector, the values are selected by the
// labels that they have: a policy's "403 or a subset" holds whatever the rule.
func TestValuesAreSelected(t *testing.T) {
	read := func(metricsQuery, text string) labels.Selector {
		t.Helper()
		mq, err := external(t, metricsQuery).ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "lag", Series: selector(t, text)})
		if err != nil {
			t.Fatal(err)
		}
		return mq.Select
	}
	if s := read(`max(lag{<<.LabelMatchers>>}) by (env)`, "env=prod"); s != nil {
		t.Errorf("the query selects already, and the values are selected by %s", s)
	}
	if s := read(`max(lag{<<.LabelMatchers>>})`, "verb=,team!="); s != nil {
		t.Errorf("the query selects empty values already, and the values are selected by %s", s)
	}
	if s := read(`max(lag{<<.LabelMatchers>>}) by (env)`, ""); s != nil {
		t.Errorf("without a selector: %s", s)
	}
	for _, metricsQuery := range []string{`max(lag) by (env)`, `max(lag{<<.LabelMatchers>>}) by (env) or other`, `max(lag{<<.LabelMatchers>>}) by (env) default 0`} {
		s := read(metricsQuery, "env=prod,team!=bank")
		if s == nil {
			t.Fatalf("%s: nothing is selected", metricsQuery)
		}
		for _, test := range []struct {
			labels labels.Set
			want   bool
		}{
			{nil, true}, {labels.Set{"env": "prod"}, true}, {labels.Set{"env": "test"}, false}, {labels.Set{"team": "bank"}, false},
			{labels.Set{"env": "prod", "team": "shop", "queue": "a"}, true},
		} {
			if s.Matches(test.labels) != test.want || s.DeepCopySelector().Matches(test.labels) != test.want {
				t.Errorf("%s: %v is selected: %v", metricsQuery, test.labels, !test.want)
			}
		}
	}
}

// A selector selects the values of a declared metric as that of a rule selects series: a missing label has
// the empty value.
func TestDeclaredValuesAreSelectedLikeSeries(t *testing.T) {
	c := newCatalog(t, backend(nil, nil))
	c.Declare([]*v1alpha1.CustomMetric{customMetric("shop", "hits", "hits")}, []*v1alpha1.ExternalMetric{externalMetric("shop", "jobs", "jobs")})
	series := []labels.Set{{}, {"verb": ""}, {"verb": "GET"}, {"verb": "PUT"}}
	for _, text := range []string{
		"verb=", "verb!=", "verb=GET", "verb!=GET", "verb", "!verb", "verb in (,GET)", "verb notin (,GET)", "verb in (GET,PUT)", "verb notin (GET,PUT)",
		"verb!=,verb!=GET", "verb=,other=", "other!=", "verb=GET,!other",
	} {
		r := pods("shop", "hits", "a")
		r.Series = selector(t, text)
		custom, _, err := c.ObjectQuery(r)
		if err != nil {
			t.Fatal(err)
		}
		external, err := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "jobs", Series: r.Series})
		if err != nil {
			t.Fatal(err)
		}
		asked, err := promql.FromSelector(r.Series)
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range series {
			// An ExternalMetric may give a label the empty value; it exists for !label, see policy.Implies.
			want := text != "!verb" || !of.Has("verb")
			for _, s := range asked {
				want = want && promlabels.MustNewMatcher(s.Type, s.Label, s.Value).Matches(of[s.Label])
			}
			for kind, s := range map[string]labels.Selector{"custom": custom.Select, "external": external.Select, "copied": custom.Select.DeepCopySelector()} {
				if got := s.Matches(of); got != want {
					t.Errorf("%s, %s: %v is selected: %v, and of a rule %v", kind, text, of, got, want)
				}
			}
		}
	}
}

func TestRulesThatIgnoreSelectors(t *testing.T) {
	for metricsQuery, want := range map[string]bool{
		`max(lag)`: true, `max(lag{env="<<index .LabelValuesByName "env">>"})`: true,
		``: false, `max(lag{<<.LabelMatchers>>})`: false, `max(lag{<<.LabelMatchers>>}) default 0`: false,
		`max(lag{<<range $l, $v := .LabelValuesByName>><<$l>>=~"<<$v>>",<<end>>})`: false,
	} {
		found := false
		for _, h := range external(t, metricsQuery).Health().Rules {
			found = found || h.Reason == ReasonIgnoresSelectors && h.State == v1alpha1.RuleWarning
		}
		if found != want {
			t.Errorf("%s: the remark is there: %v", metricsQuery, found)
		}
	}
	// What describes objects is asked for by object, and no policy is about it.
	c := newCatalog(t, backend([]v1alpha1.MetricRule{{SeriesQuery: "lag", Resources: namespacePod, MetricsQuery: "max(lag) by (pod)"}}, nil), seriesOf("lag", "namespace", "pod"))
	if h := c.Health(); len(h.Rules) != 0 {
		t.Errorf("of objects: %+v", h.Rules)
	}
}

// A template may need labels that only the client's selector has.
func TestTemplatesThatNeedLabels(t *testing.T) {
	for _, test := range []struct{ metricsQuery, good, want, bad string }{
		{`histogram_quantile(<<index .LabelValuesByName "quantile">>, sum(rate(<<.Series>>{namespace="shop"}[5m])) by (le))`, "quantile=0.9", `histogram_quantile(0.9, `, ""},
		{`histogram_quantile(<<.LabelValuesByName.quantile>>, sum(rate(<<.Series>>{namespace="shop"}[5m])) by (le))`, "quantile=0.9", `histogram_quantile(0.9, `, "quantile=high"},
		{`max_over_time(lag[<<index $.LabelValuesByName "window">>])`, "window=5m", `lag[5m]`, "queue=a"},
		{`<<range $k, $v := .LabelValuesByName>><<if eq $k "queue">>max(lag{queue="<<$v>>"})<<end>><<end>>`, "queue=a", `queue="a"`, "x=y"},
	} {
		t.Run(test.metricsQuery, func(t *testing.T) {
			c := external(t, test.metricsQuery)
			if h := c.Health(); h.Failing != 0 || len(h.Rules) == 0 || h.Rules[0].Reason != ReasonNeedsLabels {
				t.Errorf("health %+v", h)
			}
			ask := func(text string) (string, error) {
				mq, err := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "lag", Series: selector(t, text)})
				return mq.Query.Expression, err
			}
			if got, err := ask(test.good); err != nil || !strings.Contains(got, test.want) {
				t.Errorf("with %s: %q, %v", test.good, got, err)
			}
			if got, err := ask(test.bad); !apierrors.IsBadRequest(err) {
				t.Errorf("with %q: %q, %v", test.bad, got, err)
			}
		})
	}
	c := external(t, `max(lag{<<range $l, $v := .LabelValuesByName>><<$l>>=~"<<$v>>",<<end>>})`)
	if _, err := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "lag", Series: selector(t, "app.kubernetes.io/name=web")}); !apierrors.IsBadRequest(err) {
		t.Errorf("a key that is no label's name: %v", err)
	}
}

// What this parser does not know another server may.
func TestOtherLanguages(t *testing.T) {
	for _, metricsQuery := range []string{
		`sum(holt_winters(<<.Series>>{<<.LabelMatchers>>}[5m], 0.5, 0.5)) by (<<.GroupBy>>)`,
		`sum(rate(<<.Series>>{<<.LabelMatchers>>})) by (<<.GroupBy>>)`,
		`sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) default 0`,
	} {
		c := newCatalog(t, backend([]v1alpha1.MetricRule{{SeriesQuery: "requests", Resources: namespacePod, MetricsQuery: metricsQuery}}, nil), seriesOf("requests", "namespace", "pod"))
		h := c.Health()
		if h.Failing != 0 || len(h.Rules) != 1 || h.Rules[0].Reason != ReasonUncheckedMetricsQuery || h.Rules[0].State != v1alpha1.RuleWarning {
			t.Errorf("%s: health %+v", metricsQuery, h)
		}
		mq, _, err := c.ObjectQuery(pods("shop", "requests", "a"))
		want := strings.NewReplacer("<<.Series>>", "requests", "<<.LabelMatchers>>", `namespace="shop",pod="a"`, "<<.GroupBy>>", "pod").Replace(metricsQuery)
		if err != nil || mq.Query.Expression != want {
			t.Errorf("it asks %q, %v", mq.Query.Expression, err)
		}
		// The name cannot be looked at in such a query, so it must be a plain one.
		c.SetSeries(c.Selections()[0], []series.Series{seriesOf("requests{} or x", "namespace", "pod"), seriesOf("by", "namespace", "pod")})
		if len(objects(c)) != 0 {
			t.Errorf("%s: metrics %v", metricsQuery, objects(c))
		}
	}
	// What a team declares must be confined, so it must be known.
	d := newCatalog(t, backend(nil, nil))
	o := &v1alpha1.ExternalMetric{}
	o.Namespace, o.Name, o.Spec.Query = "shop", "lag", "sum(lag) default 0"
	d.Declare(nil, []*v1alpha1.ExternalMetric{o})
	if all := d.Declared(); len(all) != 1 || all[0].Reason != ReasonInvalidQuery {
		t.Errorf("declared: %+v", all)
	}
}

// Clients write \| for a slash, so nothing could read a metric with it in its name.
func TestEscapedNames(t *testing.T) {
	c := newCatalog(t, backend(nil, []v1alpha1.MetricRule{{SeriesQuery: "lag", Name: v1alpha1.RuleName{As: `cloud\|lag`}}}), seriesOf("lag", "namespace"))
	if h := c.Health(); h.Failing != 1 || !strings.Contains(h.Rules[0].Message, "write the slash itself") || len(externals(c)) != 0 {
		t.Errorf("health %+v, metrics %v", h, externals(c))
	}
	o := &v1alpha1.ExternalMetric{}
	o.Namespace, o.Name, o.Spec.Query, o.Spec.MetricName = "shop", "lag", "sum(lag)", `cloud\|lag`
	c.Declare(nil, []*v1alpha1.ExternalMetric{o})
	if all := c.Declared(); len(all) != 1 || all[0].Reason != ReasonInvalidName {
		t.Errorf("declared: %+v", all)
	}
}

// A label may be selected by more than once. Policies let such a query pass for what all of it
// allows together, so a template must not be given more than that.
func TestLabelsSelectedByMoreThanOnce(t *testing.T) {
	const (
		values   = `sum(lag{env=~"<<index .LabelValuesByName "env">>"})`
		each     = `sum(lag{<<range $l, $v := .LabelValuesByName>><<$l>>=~"<<$v>>",<<end>>})`
		matchers = `sum(lag{<<.LabelMatchers>>})`
		both     = `sum(lag{<<.LabelMatchers>>}) / sum(all{env=~"<<index .LabelValuesByName "env">>"})`
	)
	for _, test := range []struct {
		metricsQuery, selector, want string // empty where it is refused
	}{
		{values, "env=a,env in (a,b)", `sum(lag{env=~"a"})`},
		{values, "env in (a,b),env=a", `sum(lag{env=~"a"})`},
		{values, "env in (a,b,c),env in (b,c,d)", `sum(lag{env=~"b|c"})`},
		{each, "env=a,env in (a,b),queue=q", `sum(lag{env=~"a",namespace=~"shop",queue=~"q",})`},
		{both, "env in (a,b),env!=b", `sum(lag{env=~"a|b",env!="b",namespace="shop"}) / sum(all{env=~"a"})`},
		{matchers, "env=a,env in (a,b)", `sum(lag{env="a",env=~"a|b",namespace="shop"})`},
		{matchers, "env!=a,env!=b", `sum(lag{env!="a",env!="b",namespace="shop"})`},
		// What contradicts itself passes each policy, as it selects nothing.
		{values, "env=a,env=b", ""}, {values, "env=b,env=a", ""}, {matchers, "env=a,env=b", ""},
		{values, "env=b,queue=x,queue=y", ""}, {values, "env=b,queue=x,!queue", ""}, {values, "env=b,queue,!queue", ""}, {values, "env=b,queue=x,queue!=x", ""},
	} {
		mq, err := external(t, test.metricsQuery).ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "lag", Series: selector(t, test.selector)})
		if got := mq.Query.Expression; got != test.want || apierrors.IsBadRequest(err) != (test.want == "") {
			t.Errorf("%s with %q: %q, %v", test.metricsQuery, test.selector, got, err)
		}
	}
}
