// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/promql/parser"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

func TestInvalidRequests(t *testing.T) {
	c := newCatalog(t, backend([]v1alpha1.MetricRule{
		{SeriesQuery: "requests", Resources: v1alpha1.RuleResources{Template: "<<.Resource>>"}},
	}, []v1alpha1.MetricRule{
		{SeriesQuery: "requests", Name: v1alpha1.RuleName{As: "external"}, MetricsQuery: "sum({<<.LabelMatchers>>})", Resources: v1alpha1.RuleResources{Namespaced: new(bool)}},
	}), seriesOf("requests", "namespace", "pod", "node"))
	in := func(resource, namespace, metric, series string, names ...string) query.ObjectRequest {
		r := query.ObjectRequest{Resource: schema.ParseGroupResource(resource), Namespace: namespace, Names: names, Metric: metric}
		if series != "" {
			r.Series = selector(t, series)
		}
		return r
	}
	for name, test := range map[string]struct {
		request query.ObjectRequest
		is      func(error) bool
		message string
	}{
		"no such resource":          {in("brands.cheese.io", "shop", "requests", "", "a"), apierrors.IsNotFound, "no resource"},
		"no such metric":            {in("pods", "shop", "latency", "", "a"), apierrors.IsNotFound, `makes the metric "latency" of pods`},
		"of another resource":       {in("services", "shop", "requests", "", "a"), apierrors.IsNotFound, "of services"},
		"no namespace":              {in("pods", "", "requests", "", "a"), apierrors.IsBadRequest, "pods are in namespaces"},
		"a namespace too much":      {in("nodes", "shop", "requests", "", "a"), apierrors.IsBadRequest, "nodes are in no namespace"},
		"a comparison":              {in("pods", "shop", "requests", "a>1", "a"), apierrors.IsBadRequest, "cannot be asked of PromQL"},
		"a name that leaves quotes": {in("pods", "shop", "requests", "", `a"} or up{x="`), apierrors.IsBadRequest, "has the character"},
		"a namespace that does":     {in("pods", `a"`, "requests", "", "a"), apierrors.IsBadRequest, "cannot be one"},
		"an empty name":             {in("pods", "shop", "requests", "", ""), apierrors.IsBadRequest, "is empty"},
		"a long name":               {in("pods", "shop", "requests", "", strings.Repeat("a", 254)), apierrors.IsBadRequest, "longer than"},
		"no names":                  {query.ObjectRequest{Resource: schema.GroupResource{Resource: "pods"}, Namespace: "shop", Names: []string{}, Metric: "requests"}, apierrors.IsBadRequest, "names no object"},
		"nothing selected":          {query.ObjectRequest{Resource: schema.GroupResource{Resource: "pods"}, Namespace: "shop", Metric: "requests", Series: labels.Nothing()}, apierrors.IsBadRequest, "selects nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := c.ObjectQuery(test.request)
			if !test.is(err) || !strings.Contains(err.Error(), test.message) {
				t.Errorf("error %v, want one with %q", err, test.message)
			}
		})
	}
	for name, test := range map[string]struct {
		request query.ExternalRequest
		is      func(error) bool
	}{
		"no such metric":         {query.ExternalRequest{Namespace: "shop", Metric: "x"}, apierrors.IsNotFound},
		"a namespace":            {query.ExternalRequest{Namespace: "sh`op", Metric: "external"}, apierrors.IsBadRequest},
		"a selector is needed":   {query.ExternalRequest{Namespace: "shop", Metric: "external"}, apierrors.IsBadRequest},
		"a selector of nothing":  {query.ExternalRequest{Namespace: "shop", Metric: "external", Series: labels.Nothing()}, apierrors.IsBadRequest},
		"a metric's name quoted": {query.ExternalRequest{Namespace: "shop", Metric: `"`}, apierrors.IsNotFound},
	} {
		t.Run("external, "+name, func(t *testing.T) {
			if _, err := c.ExternalQuery(test.request); !test.is(err) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// A metric that may exist is not said to be missing.
func TestBeforeDiscovery(t *testing.T) {
	world := &cluster{index: &restmapping.Mapper{}}
	c := NewCatalog(world, clock.RealClock{})
	c.Apply(backend([]v1alpha1.MetricRule{{SeriesQuery: "requests", Resources: namespacePod}}, []v1alpha1.MetricRule{{SeriesQuery: "lag"}}))
	if _, _, err := c.ObjectQuery(pods("shop", "requests", "a")); !apierrors.IsServiceUnavailable(err) || world.wanted == 0 {
		t.Errorf("without discovery: %v, asked for %d times", err, world.wanted)
	}
	if h := c.Health(); len(h.Rules) != 0 {
		t.Errorf("before discovery: %+v", h.Rules)
	}
	world.index = index()
	c.SetResources(world.index)
	if _, _, err := c.ObjectQuery(pods("shop", "requests", "a")); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("without series: %v", err)
	}
	if _, err := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "lag"}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("without series: %v", err)
	}
	c.SetFound(Selection{"prometheus", "requests"}, series.Found{Err: errors.New("it is down")})
	if _, _, err := c.ObjectQuery(pods("shop", "requests", "a")); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "it is down") {
		t.Errorf("with a source that fails: %v", err)
	}
	if h := c.Health(); h.Failing != 1 || h.Rules[0].Reason != ReasonSeriesUnavailable {
		t.Errorf("with a source that fails: %+v", h)
	}
	for _, s := range c.Selections() {
		c.SetSeries(s, nil)
	}
	if _, _, err := c.ObjectQuery(pods("shop", "requests", "a")); !apierrors.IsNotFound(err) {
		t.Errorf("with no series: %v", err)
	}
}

// What a source said last stays while it fails.
func TestSeriesStayWhileTheSourceFails(t *testing.T) {
	c := newCatalog(t, backend([]v1alpha1.MetricRule{{SeriesQuery: "requests", Resources: namespacePod}}, nil), seriesOf("requests", "namespace", "pod"))
	c.SetSeriesFailure(c.Selections()[0], errors.New("it is down"))
	if _, _, err := c.ObjectQuery(pods("shop", "requests", "a")); err != nil {
		t.Error(err)
	}
	if h := c.Health(); h.Failing != 0 || len(h.Rules) != 1 || h.Rules[0].Reason != ReasonSeriesUnavailable {
		t.Errorf("health %+v", h)
	}
	c.SetSeries(c.Selections()[0], []series.Series{seriesOf("requests", "namespace", "pod")})
	if h := c.Health(); len(h.Rules) != 0 {
		t.Errorf("health %+v", h)
	}
}

// Autoscalers with different selectors share one query, until the metric has too
// many series; then each names its objects.
func TestSharedQueries(t *testing.T) {
	c := newCatalog(t, backend([]v1alpha1.MetricRule{{SeriesQuery: "requests", Resources: namespacePod}}, nil), seriesOf("requests", "namespace", "pod"))
	queries := map[query.Query]bool{}
	ask := func(series string, names ...string) {
		t.Helper()
		r := pods("shop", "requests", names...)
		r.Series = selector(t, series)
		mq, _, err := c.ObjectQuery(r)
		if err != nil {
			t.Fatal(err)
		}
		queries[mq.Query] = true
	}
	ask("", "a")
	ask("", "b", "c")
	ask("", "d.e")
	ask("")
	if len(queries) != 1 {
		t.Errorf("%d queries: %v", len(queries), queries)
	}
	ask("verb=GET", "a")
	ask("verb=GET", "b")
	if len(queries) != 2 {
		t.Errorf("with a selector of the metric %d queries: %v", len(queries), queries)
	}
	clear(queries)
	many := seriesOf("requests", "namespace", "pod")
	many.Count = maxSharedSeries + 1
	c.SetSeries(c.Selections()[0], []series.Series{many})
	ask("", "a")
	ask("", "b", "c")
	if len(queries) != 2 {
		t.Errorf("of many series %d queries: %v", len(queries), queries)
	}
}

// A query belongs to the namespace that its template uses; one without is shared by all, and evaluated
// for the namespace that asks.
func TestTenantsOfQueries(t *testing.T) {
	type tenant struct{ Tenant, Requester string }
	tests := map[string]struct {
		metricsQuery, namespace string
		want                    tenant
	}{
		"matcher":                 {`sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)`, "shop", tenant{"shop", ""}},
		"matcher, and a dot":      {`sum(<<.Series>>{<<.LabelMatchers>>,app=~"<<.LabelValuesByName.app>>"})`, "shop", tenant{"shop", ""}},
		"condition":               {`<<if eq .LabelValuesByName.namespace "shop">>sum<<else>>max<<end>>(<<.Series>>)`, "shop", tenant{"shop", ""}},
		"own matcher":             {`sum(<<.Series>>{namespace="shop"})`, "shop", tenant{"", "shop"}},
		"value":                   {`sum(<<.Series>>{namespace=~"<<.LabelValuesByName.namespace>>"})`, "shop", tenant{"shop", ""}},
		"none":                    {`sum(<<.Series>>) by (<<.GroupBy>>)`, "shop", tenant{"", "shop"}},
		"none, and a dot":         {`sum(<<.Series>>{app=~"<<.LabelValuesByName.app>>"})`, "shop", tenant{"", "shop"}},
		"name that is in a query": {`sum(<<.Series>>) by (<<.GroupBy>>)`, "sum", tenant{"", "sum"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			rules := []v1alpha1.MetricRule{{SeriesQuery: "requests", Resources: namespacePod, MetricsQuery: test.metricsQuery}}
			c := newCatalog(t, backend(rules, rules), seriesOf("requests", "namespace", "pod"))
			mq, err := c.ExternalQuery(query.ExternalRequest{Namespace: test.namespace, Metric: "requests", Series: selector(t, "app=a.b")})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, tenant{mq.Query.Tenant, mq.Query.Requester}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", mq.Query.Expression, diff)
			}
		})
	}
}

// The query of a rule that is not for namespaces is evaluated for the namespace that asks.
func TestRequesterOfClusterWideRules(t *testing.T) {
	rules := []v1alpha1.MetricRule{{SeriesQuery: "requests", Resources: v1alpha1.RuleResources{Namespaced: ptr.To(false)}}}
	c := newCatalog(t, backend(nil, rules), seriesOf("requests"))
	mq, err := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "requests"})
	if err != nil || mq.Query.Tenant != "" || mq.Query.Requester != "shop" {
		t.Errorf("%+v (%v)", mq.Query, err)
	}
}

// A request for more objects than a query can name is the client's.
func TestTooManyObjects(t *testing.T) {
	c := newCatalog(t, backend([]v1alpha1.MetricRule{{SeriesQuery: "requests", Resources: namespacePod, MetricsQuery: "topk(1, <<.Series>>{<<.LabelMatchers>>})"}}, nil), seriesOf("requests", "namespace", "pod"))
	names := make([]string, 50000)
	for i := range names {
		names[i] = fmt.Sprintf("web-5d4f8c7b9d-%09d", i)
	}
	if _, _, err := c.ObjectQuery(pods("shop", "requests", names...)); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "too many") {
		t.Errorf("error %v", err)
	}
	if _, _, err := c.ObjectQuery(pods("shop", "requests", names[:5000]...)); err != nil {
		t.Errorf("of 5,000: %v", err)
	}
}

func TestCollisions(t *testing.T) {
	rule := func(seriesQuery, query string) v1alpha1.MetricRule {
		return v1alpha1.MetricRule{SeriesQuery: seriesQuery, Resources: namespacePod, Name: v1alpha1.RuleName{As: "m"}, MetricsQuery: query}
	}
	spec := backend([]v1alpha1.MetricRule{
		rule("a", "sum(a{<<.LabelMatchers>>}) by (<<.GroupBy>>)"), rule("b", ""), rule(`{__name__=~"c.*"}`, "sum(c{<<.LabelMatchers>>}) by (<<.GroupBy>>)"),
	}, []v1alpha1.MetricRule{rule("a", ""), rule("b", "")})
	c := NewCatalog(&cluster{index: index()}, clock.RealClock{})
	c.Apply(spec)
	for _, s := range c.Selections() {
		found := []series.Series{seriesOf(s.Selector, "namespace", "pod")}
		if strings.HasPrefix(s.Selector, "{") {
			found = []series.Series{seriesOf("c1", "namespace", "pod"), seriesOf("c2", "namespace", "pod")}
		}
		c.SetSeries(s, found)
	}
	mq, _, err := c.ObjectQuery(pods("shop", "m", "x"))
	if err != nil || mq.Origin != "spec.customMetrics.rules[2]" {
		t.Errorf("the last rule counts: %+v, %v", mq, err)
	}
	external, err := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "m"})
	if err != nil || external.Origin != "spec.externalMetrics.rules[1]" {
		t.Errorf("the last rule counts: %+v, %v", external, err)
	}
	h := c.Health()
	var colliding []string
	for _, r := range h.Rules {
		if r.Reason == ReasonCollision {
			colliding = append(colliding, r.Path)
		}
	}
	// The third makes one metric of two series, and its query is the same for both.
	if got := strings.Join(colliding, " "); got != "spec.customMetrics.rules[0] spec.customMetrics.rules[1] spec.externalMetrics.rules[0]" {
		t.Errorf("colliding are %s: %+v", got, h.Rules)
	}
	if h.Failing != 0 {
		t.Errorf("%d fail", h.Failing)
	}
	// Without the last rule the second counts; it uses series, so two of them collide.
	spec.CustomMetrics.Rules = spec.CustomMetrics.Rules[:2]
	c.Apply(spec)
	c.SetSeries(Selection{"prometheus", "b"}, []series.Series{seriesOf("b1", "namespace", "pod"), seriesOf("b2", "namespace", "pod")})
	mq, _, err = c.ObjectQuery(pods("shop", "m", "x"))
	if err != nil || !strings.Contains(mq.Query.Expression, "b2{") {
		t.Errorf("the last series counts: %+v, %v", mq, err)
	}
	for _, r := range c.Health().Rules {
		if r.Path == "spec.customMetrics.rules[1]" && !strings.Contains(r.Message, "made of b1 and of b2") {
			t.Errorf("it says %q", r.Message)
		}
	}
	c.SetSeries(Selection{"prometheus", "b"}, nil)
	if mq, _, err = c.ObjectQuery(pods("shop", "m", "x")); err != nil || mq.Origin != "spec.customMetrics.rules[0]" {
		t.Errorf("without its series the first rule counts: %+v, %v", mq, err)
	}
}

// FuzzRequests requests with any name, namespace and selector: the query always has the
// requested matchers, and no others.
func FuzzRequests(f *testing.F) {
	f.Add("shop", "web-0", "web.1", "verb=GET")
	f.Add(`sh"op`, `a"} or up{b="`, "a|b", "x in (a,b)")
	f.Add("a", "(", ")", "!x")
	f.Add("a", "^", `\`, "a.b/c=d")
	f.Add("0", "\xa8", "0", "0")
	c := newCatalog(f, backend([]v1alpha1.MetricRule{
		{SeriesQuery: "requests", Resources: namespacePod, MetricsQuery: `topk(1, <<.Series>>{<<.LabelMatchers>>})`},
		{SeriesQuery: "requests", Resources: namespacePod, Name: v1alpha1.RuleName{As: "values"}, MetricsQuery: `topk(1, <<.Series>>{namespace="<<.LabelValuesByName.namespace>>",pod=~"<<.LabelValuesByName.pod>>"})`},
	}, nil), seriesOf("requests", "namespace", "pod"))
	f.Fuzz(func(t *testing.T, namespace, first, second, series string) {
		s, err := labels.Parse(series)
		if err != nil {
			return
		}
		for _, metric := range []string{"requests", "values"} {
			r := pods(namespace, metric, first, second)
			r.Series = s
			mq, _, err := c.ObjectQuery(r)
			if err != nil {
				if !apierrors.IsBadRequest(err) {
					t.Errorf("error %v", err)
				}
				continue
			}
			e, err := parser.NewParser(parser.Options{}).ParseExpr(mq.Query.Expression)
			if err != nil {
				t.Fatal(err)
			}
			selectors := parser.ExtractSelectors(e)
			if len(selectors) != 1 {
				t.Fatalf("%d selectors in %s", len(selectors), mq.Query.Expression)
			}
			on := map[string]int{}
			for _, m := range selectors[0] {
				on[m.Name]++
				if m.Name == "namespace" && metric == "values" && m.Value != namespace {
					t.Errorf("%s asks for another namespace than %q", mq.Query.Expression, namespace)
				}
				if m.Name == "pod" && metric == "values" && (!m.Matches(first) || !m.Matches(second)) {
					t.Errorf("%s does not ask for %q and %q", mq.Query.Expression, first, second)
				}
			}
			if metric == "values" && len(selectors[0]) != 3 {
				t.Errorf("%d matchers in %s", len(selectors[0]), mq.Query.Expression)
			}
			if on["namespace"] == 0 || on["pod"] == 0 {
				t.Errorf("matchers are missing in %s", mq.Query.Expression)
			}
		}
	})
}
