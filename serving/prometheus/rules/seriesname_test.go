// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// Whoever is scraped chooses the names of series, and must not write queries by them.
func TestHostileSeries(t *testing.T) {
	for name, hostile := range map[string]bool{
		`http_x{} or secret_y`: true,
		`http_x or sum by (pod) (label_replace(secret,"pod","web-1","","")) or http_x`: true,
		"http.server.requests": true, // no attack, but no PromQL either
		"nan":                  true,
		"by":                   false,
		"http_x":               false,
	} {
		rule := v1alpha1.MetricRule{SeriesQuery: `{__name__=~".+"}`, Resources: namespacePod, Name: v1alpha1.RuleName{Matches: ".*", As: "m"}}
		c := newCatalog(t, backend([]v1alpha1.MetricRule{rule}, []v1alpha1.MetricRule{rule}), seriesOf(name, "namespace", "pod"))
		_, _, custom := c.ObjectQuery(pods("shop", "m", "web-1"))
		_, external := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "m"})
		if apierrors.IsNotFound(custom) != hostile || apierrors.IsNotFound(external) != hostile {
			t.Errorf("%s: errors %v, and %v", name, custom, external)
		}
		if !hostile {
			continue
		}
		if len(objects(c)) != 0 || len(externals(c)) != 0 {
			t.Errorf("%s is in discovery: %v %v", name, objects(c), externals(c))
		}
		h := c.Health()
		if h.Failing != 2 || h.Rules[0].Reason != ReasonInvalidName || !strings.Contains(h.Rules[0].Message, "cannot be put into a query") {
			t.Errorf("%s: health %+v", name, h)
		}
	}
}

// One odd name among others fails no rule.
func TestHostileSeriesAmongOthers(t *testing.T) {
	c := newCatalog(t, backend([]v1alpha1.MetricRule{{SeriesQuery: `{namespace!=""}`, Resources: namespacePod}}, nil),
		seriesOf("requests", "namespace", "pod"), seriesOf(`x{}`+strings.Repeat("y", 1000), "namespace", "pod"))
	h := c.Health()
	if h.Failing != 0 || len(h.Rules) != 1 || h.Rules[0].State != v1alpha1.RuleWarning || len(h.Rules[0].Message) > 500 {
		t.Errorf("health %+v", h)
	}
	if _, _, err := c.ObjectQuery(pods("shop", "requests", "a")); err != nil {
		t.Error(err)
	}
}

// A rule that names such series itself reads them.
func TestQuotedSeries(t *testing.T) {
	c := newCatalog(t, backend([]v1alpha1.MetricRule{{
		SeriesQuery: `{"http.requests"}`, Resources: namespacePod, Name: v1alpha1.RuleName{As: "http_requests"},
		MetricsQuery: `sum({"http.requests",<<.LabelMatchers>>}) by (<<.GroupBy>>)`,
	}}, nil), seriesOf("http.requests", "namespace", "pod"))
	mq, _, err := c.ObjectQuery(pods("shop", "http_requests", "a"))
	if want := `sum({"http.requests",namespace="shop",pod!=""}) by (pod)`; err != nil || mq.Query.Expression != want || len(c.Health().Rules) != 0 {
		t.Errorf("%q, %v, health %+v", mq.Query.Expression, err, c.Health())
	}
}

// A label that only looks like one of the template's is put into no query.
func TestHostileLabels(t *testing.T) {
	rule := v1alpha1.MetricRule{
		SeriesQuery: "requests", Resources: v1alpha1.RuleResources{Template: ".*_<<.Resource>>"},
		MetricsQuery: `max(<<.Series>>{<<range $l, $v := .LabelValuesByName>><<$l>>=~"<<$v>>",<<end>>})`,
	}
	c := newCatalog(t, backend([]v1alpha1.MetricRule{rule}, nil), seriesOf("requests", `a="} or secret{b_pod`, "x_namespace"))
	for _, m := range objects(c) {
		if m.Resource.Resource == "pods" {
			t.Errorf("the label makes %v", m)
		}
	}
}

// FuzzSeriesNames asks for the metrics of a series of any name: the queries select what
// those of a harmless name select.
func FuzzSeriesNames(f *testing.F) {
	for _, name := range []string{`x{} or secret_y`, `x"} or secret{a="`, "x or y", "by", "nan", "Inf", "http.requests", "x)", "x #", "a:b", "sum", "\n", "time()"} {
		f.Add(name)
	}
	const harmless = "harmless_requests_total"
	queries := []string{
		"", `sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)`, `<<.Series>>`, `<<.Series>>_sum / x`,
		`max({__name__="<<.Series>>",<<.LabelMatchers>>})`, "sum(\n<<.Series>>{<<.LabelMatchers>>}\n) + 1",
	}
	rules := make([]v1alpha1.MetricRule, len(queries))
	for i, q := range queries {
		rules[i] = v1alpha1.MetricRule{SeriesQuery: `{__name__!=""}`, Resources: namespacePod, Name: v1alpha1.RuleName{Matches: "(?s).*", As: string(rune('a' + i))}, MetricsQuery: q}
	}
	spec := backend(rules, rules)
	ask := func(t testing.TB, name string) map[string][]string {
		c := newCatalog(t, spec, series.Series{Name: name, Labels: []string{"namespace", "pod"}, Count: 1})
		all := map[string][]string{}
		note := func(metric string, mq query.MetricQuery, err error) {
			if err == nil {
				all[metric] = selectorsOf(t, mq.Query.Expression, name)
			}
		}
		for _, m := range objects(c) {
			if m.Resource.Resource == "pods" {
				mq, _, err := c.ObjectQuery(pods("shop", m.Name, "web-1"))
				note("pods/"+m.Name, mq, err)
			}
		}
		for _, m := range externals(c) {
			mq, err := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: m})
			note(m, mq, err)
		}
		return all
	}
	want := ask(f, harmless)
	if len(want) != 2*len(queries) {
		f.Fatalf("a harmless name makes %v", want)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if len(name) == 0 || len(name) > 2048 || name == "x" {
			return
		}
		for metric, got := range ask(t, name) {
			if diff := cmp.Diff(want[metric], got); diff != "" {
				t.Errorf("the series %q makes another query of %s (-want +got):\n%s", name, metric, diff)
			}
		}
	})
}

// selectorsOf are the selectors of an expression, with NAME for the series.
func selectorsOf(t testing.TB, expression, name string) []string {
	e, err := promql.Parse(expression)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	var all []string
	for _, matchers := range parser.ExtractSelectors(e) {
		var s []string
		for _, m := range matchers {
			text := m.String()
			if m.Name == model.MetricNameLabel && strings.HasPrefix(m.Value, name) {
				text = "NAME" + m.Value[len(name):]
			}
			s = append(s, text)
		}
		slices.Sort(s)
		all = append(all, strings.Join(s, ","))
	}
	slices.Sort(all)
	return all
}
