// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package prometheus

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	source "github.com/metricsbackend/metrics-backend-operator/serving/prometheus"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	discovered "github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

// neighbours are series of two namespaces. The pods of the one are uneven on purpose:
// what is wrong with one must not reach another. What another namespace has is 666.
const neighbours = `
requests_total{namespace="a",pod="one",code="200"} 0 +20
requests_total{namespace="a",pod="one",code="500"} 0 +2
requests_total{namespace="a",pod="two",code="200"} 0 +7
requests_total{namespace="a",pod="th.ree",code="200"} 0 +3
requests_total{namespace="b",pod="one",code="200"} 666
errors_total{namespace="a",pod="one"} 0 +2
errors_total{namespace="b",pod="one"} 666
depth{namespace="a",pod="one"} 5
depth{namespace="a",pod="two"} 11
depth{namespace="a",pod="two",twice="yes"} 12
depth{namespace="a"} 99
depth{namespace="b",pod="one"} 666
capacity{namespace="a",pod="one"} 10
capacity{namespace="a",pod="two"} 10
capacity{namespace="b",pod="one"} 666
limit{namespace="b"} 666
target_info{namespace="b",instance="x",job="y",secret="666"} 1
`

const neighboursScraped = `sum(rate(requests_total{namespace="a"}[5s] offset 2s)) > 25`

// pods knows of pods and namespaces.
type pods struct{ index *restmapping.Mapper }

func (p pods) Current() *restmapping.Mapper { return p.index }
func (pods) RefreshSoon()                   {}

func newPods() pods {
	return pods{restmapping.NewMapper(
		[]*metav1.APIGroup{{PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: "v1", Version: "v1"}}},
		[]*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true}, {Name: "namespaces", SingularName: "namespace", Kind: "Namespace"},
		}}},
	)}
}

// A question for all objects of a namespace gives each what a question for it gives.
func TestWideQuestionsGiveTheSame(t *testing.T) {
	t.Parallel()
	src := start(t, neighbours, neighboursScraped).source
	// No scrape of that time or before is stored later: there is one target, and this is its last one.
	last, err := src.Evaluate(t.Context(), query.Query{Expression: `max(timestamp(depth))`}, time.Now())
	if err != nil || len(last.Samples) != 1 {
		t.Fatalf("the time of the last scrape: %+v, %v", last, err)
	}
	at := time.UnixMilli(int64(math.Round(last.Samples[0].Value * 1000)))
	wide := 0
	for _, metricsQuery := range []string{
		`sum(rate(requests_total{<<.LabelMatchers>>}[5s])) by (<<.GroupBy>>)`,
		`sum by (<<.GroupBy>>, code) (rate(requests_total{<<.LabelMatchers>>}[5s]))`,
		`max(depth{<<.LabelMatchers>>}) by (<<.GroupBy>>)`,
		`depth{<<.LabelMatchers>>}`,
		`depth{<<.LabelMatchers>>} / capacity{<<.LabelMatchers>>}`,
		`sum(depth{<<.LabelMatchers>>}) by (<<.GroupBy>>) / sum(capacity{<<.LabelMatchers>>}) by (<<.GroupBy>>)`,
		`sum(depth{<<.LabelMatchers>>}) by (<<.GroupBy>>) / on (<<.GroupBy>>) sum(capacity{<<.LabelMatchers>>}) by (<<.GroupBy>>)`,
		`depth{<<.LabelMatchers>>} / on (<<.GroupBy>>) capacity{<<.LabelMatchers>>}`,
		`max_over_time(sum(rate(requests_total{<<.LabelMatchers>>}[3s])) by (<<.GroupBy>>)[4s:1s])`,
		`sum(depth{<<.LabelMatchers>>}) by (<<.GroupBy>>) > 8`,
		`sum(depth{<<.LabelMatchers>>}) by (<<.GroupBy>>) or sum(capacity{<<.LabelMatchers>>}) by (<<.GroupBy>>)`,
		`avg without (twice) (depth{<<.LabelMatchers>>}) and on () limit`,
		`max(depth{pod=~"<<.LabelValuesByName.pod>>",namespace="<<.LabelValuesByName.namespace>>"}) by (pod)`,
		`topk(1, depth{<<.LabelMatchers>>})`,
		`sum(depth{<<.LabelMatchers>>}) by (<<.GroupBy>>) / scalar(sum(depth{<<.LabelMatchers>>}))`,
		`sum(depth{<<.LabelMatchers>>}) by (<<.GroupBy>>) or vector(1)`,
		`absent(depth{<<.LabelMatchers>>})`,
	} {
		ask := func(count int, names ...string) query.Query {
			t.Helper()
			c := rules.NewCatalog(newPods(), clock.RealClock{})
			c.Apply(&v1alpha1.MetricsBackendSpec{
				Sources:       []v1alpha1.SourceSpec{{Name: "real", Prometheus: &v1alpha1.PrometheusSource{URL: "http://x"}}},
				CustomMetrics: &v1alpha1.CustomMetricsSpec{Rules: []v1alpha1.MetricRule{{SeriesQuery: "depth", Resources: v1alpha1.RuleResources{Template: "<<.Resource>>"}, MetricsQuery: metricsQuery}}},
			})
			c.SetSeries(c.Selections()[0], []discovered.Series{{Name: "depth", Labels: []string{"namespace", "pod"}, Count: count}})
			mq, _, err := c.ObjectQuery(query.ObjectRequest{Resource: schema.GroupResource{Resource: "pods"}, Namespace: "a", Names: names, Metric: "depth"})
			if err != nil {
				t.Fatalf("%s: %v", metricsQuery, err)
			}
			return mq.Query
		}
		const tooMany = 1 << 30
		for _, names := range [][]string{{"one"}, {"two"}, {"th.ree"}, {"one", "two"}, {"two", "th.ree"}, {"missing"}} {
			exact, shared := ask(tooMany, names...), ask(1, names...)
			if exact != shared {
				wide++
			}
			if diff := cmp.Diff(evaluate(t, src, exact, at, names), evaluate(t, src, shared, at, names), cmpopts.EquateApprox(1e-12, 0)); diff != "" {
				t.Errorf("%s of %v (-exact +shared):\n%s", metricsQuery, names, diff)
			}
		}
	}
	if wide < 60 {
		t.Errorf("only %d questions were shared", wide)
	}
}

// evaluate returns the values of some pods, by their labels, or why there are none.
func evaluate(t *testing.T, src *source.Source, q query.Query, at time.Time, names []string) map[string]float64 {
	t.Helper()
	answer, err := src.Evaluate(t.Context(), q, at)
	if err != nil {
		return map[string]float64{"failed": 1}
	}
	values := map[string]float64{}
	for _, s := range answer.Samples {
		if slices.Contains(names, s.Labels["pod"]) {
			values[fmt.Sprint(s.Labels)] = s.Value
		}
	}
	return values
}

// What a team asks yields nothing of another namespace, however it is written.
func TestConfinedQueriesReadOneNamespace(t *testing.T) {
	t.Parallel()
	src := start(t, neighbours, neighboursScraped).source
	for _, expression := range []string{
		`depth`, `{__name__=~".+"}`, `{__name__=~"depth|limit",namespace=~".*"}`, `max(depth)`, `sum(depth) by (namespace)`,
		`max_over_time(max(depth)[5s:1s])`, `max(depth offset 1s)`, `max(depth @ end())`, `limit or vector(1)`, `scalar(limit)`,
		`label_replace(depth, "namespace", "b", "", "")`, `topk(scalar(limit or vector(9)), depth)`, `depth * on (pod) group_left max by (pod) (depth)`,
		`count_values("x", {__name__=~".+"})`, `group by (secret) ({__name__=~"target_info|depth"})`, `{"limit"} or depth`,
		`sort_desc({__name__!=""})`, `-depth`, `absent(limit)`, `quantile(1, depth)`,
		`max({namespace!="x",__name__!=""})`, `last_over_time({__name__=~"limit|depth"}[5s])`, `depth unless on (pod) requests_total{namespace=~"a|b"}`,
	} {
		parsed, err := promql.Parse(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		confined, err := promql.Confine(parsed, "namespace", "a")
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		answer, err := src.Evaluate(t.Context(), query.Query{Expression: confined}, time.Now())
		if err != nil {
			t.Errorf("%s: %v", confined, err)
			continue
		}
		for _, s := range answer.Samples {
			if s.Value == 666 || s.Value == -666 || strings.Contains(fmt.Sprint(s.Labels), "666") {
				t.Errorf("%s reads %v %v of another namespace", confined, s.Labels, s.Value)
			}
		}
	}
	// The same words find it where nothing confines them.
	if answer, err := src.Evaluate(t.Context(), query.Query{Expression: `max({__name__=~".+"})`}, time.Now()); err != nil || answer.Samples[0].Value < 666 {
		t.Errorf("%+v, %v", answer, err)
	}
}
