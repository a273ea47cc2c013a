// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// FuzzRule compiles any rule beside a good-one. Whatever it is, it is invalid or makes
// metrics with names that can be asked for and queries in PromQL, and the other goes on.
func FuzzRule(f *testing.F) {
	f.Add(`{__name__=~"^container_.*"}`, "^container_.*_total$", "<<.Resource>>", "^container_(.*)_total$", "", `sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)`, "container_cpu_total", "pod")
	f.Add("up", "", "kube_<<.Group>>_<<.Resource>>", "(a)(b)", "${2}_$1", "", "ab", "kube_apps_deployment")
	f.Add("x", "(", "(<<.Resource>>", "(?P<n>.*)", "$n/", "<<range 999999999>><<end>>", "x", "(pod")
	f.Add("{}", ".", "<<.Resource>><<.Resource>>", "", "a%b", "<<.Series>>[5m]", "a", "podpod")
	f.Add("lag", "x", "<<.Resource>>", "", "", `sum(<<.Series>>{<<.LabelMatchers>>, queue=~"a.*"}) by (<<.GroupBy>>, le)`, "lag", "pod")
	f.Add("x", "y", `<<printf "%s" .Resource>>`, ".*", "$$", "topk(1, <<.Series>>{<<.LabelMatchers>>})", "x.y", "pod")
	f.Fuzz(func(t *testing.T, seriesQuery, isNot, template, matches, as, metricsQuery, name, label string) {
		for _, s := range []string{seriesQuery, isNot, template, matches, as, metricsQuery, name, label} {
			if len(s) > 2048 || strings.TrimSpace(seriesQuery) == "good" || as == "good-one" {
				return
			}
		}
		rule := v1alpha1.MetricRule{
			SeriesQuery: seriesQuery, SeriesFilters: []v1alpha1.SeriesFilter{{IsNot: isNot}},
			Resources: v1alpha1.RuleResources{Template: template}, Name: v1alpha1.RuleName{Matches: matches, As: as}, MetricsQuery: metricsQuery,
		}
		spec := backend([]v1alpha1.MetricRule{{SeriesQuery: "good", Resources: namespacePod, Name: v1alpha1.RuleName{As: "good-one"}}, rule}, []v1alpha1.MetricRule{rule})
		c := NewCatalog(&cluster{index: index()}, clock.RealClock{})
		c.Apply(spec)
		for _, s := range c.Selections() {
			found := []series.Series{seriesOf("good", "namespace", "pod")}
			if s.Selector != "good" {
				found = []series.Series{{Name: name, Labels: []string{label}}, seriesOf("requests", label, "namespace", "pod")}
			}
			c.SetSeries(s, found)
		}
		if _, _, err := c.ObjectQuery(pods("shop", "good-one", "a")); err != nil {
			t.Errorf("the good rule: %v", err)
		}
		for _, h := range c.Health().Rules {
			if h.State == "" || h.Reason == "" || h.Message == "" {
				t.Errorf("health %+v", h)
			}
		}
		check := func(mq query.MetricQuery, err error) {
			if apierrors.IsServiceUnavailable(err) || apierrors.IsBadRequest(err) {
				return
			}
			if err != nil {
				t.Errorf("error %v", err)
			} else if _, err := promql.Parse(mq.Query.Expression); err != nil {
				t.Errorf("%s: %v", mq.Query.Expression, err)
			}
		}
		for _, m := range objects(c) {
			if strings.ContainsAny(m.Name, "/%?") || m.Name == "" {
				t.Errorf("the metric's name is %q", m.Name)
			}
			r := query.ObjectRequest{Resource: m.Resource, Names: []string{"web.0", "web-1"}, Metric: m.Name}
			if m.Namespaced {
				r.Namespace = "shop"
			}
			mq, _, err := c.ObjectQuery(r)
			check(mq, err)
		}
		for _, m := range externals(c) {
			check(c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: m}))
		}
	})
}
