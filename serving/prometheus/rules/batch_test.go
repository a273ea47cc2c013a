// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	promlabels "github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// engine is a source that evaluates queries by Prometheus' own engine, always as of the same instant.
type engine struct {
	*promengine.Engine
	series []storage.Series
	// expressions are those that were evaluated.
	expressions []string
}

var engineTime = time.UnixMilli(1_700_000_000_000)

func newEngine(t testing.TB) *engine {
	e := promengine.NewEngine(promengine.EngineOpts{
		MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
		Parser:                   parser.NewParser(parser.Options{}),
	})
	t.Cleanup(func() { _ = e.Close() })
	return &engine{Engine: e}
}

// add adds a series with samples of the last minutes before engineTime, the newest one last.
func (e *engine) add(labels map[string]string, values ...float64) {
	e.addUntil(engineTime, labels, values...)
}

// addUntil adds a series whose newest sample is of an instant.
func (e *engine) addUntil(newest time.Time, labels map[string]string, values ...float64) {
	points := make([]chunks.Sample, len(values))
	for i, v := range values {
		points[i] = point{at: newest.Add(time.Duration(i+1-len(values)) * 30 * time.Second).UnixMilli(), value: v}
	}
	e.series = append(e.series, storage.NewListSeries(promlabels.FromMap(labels), points))
}

// point is a chunks.Sample with a float.
type point struct {
	chunks.Sample
	at    int64
	value float64
}

func (p point) T() int64                 { return p.at }
func (p point) ST() int64                { return 0 }
func (p point) F() float64               { return p.value }
func (p point) Type() chunkenc.ValueType { return chunkenc.ValFloat }

// Select answers the series that the matchers match, in the order in which they were added.
func (e *engine) Select(_ bool, _ *storage.SelectHints, matchers ...*promlabels.Matcher) storage.SeriesSet {
	set := &seriesSet{at: -1}
	for _, s := range e.series {
		if !slices.ContainsFunc(matchers, func(m *promlabels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) }) {
			set.series = append(set.series, s)
		}
	}
	return set
}

type seriesSet struct {
	series []storage.Series
	at     int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.series) }
func (s *seriesSet) At() storage.Series                { return s.series[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// Evaluate implements query.Source.
func (e *engine) Evaluate(ctx context.Context, q query.Query, _ time.Time) (*query.Result, error) {
	result, err := e.answer(ctx, q.Expression)
	e.expressions = append(e.expressions, q.Expression)
	if err != nil {
		return nil, &query.Failure{Reason: query.ReasonRejected, Message: err.Error()}
	}
	return result, nil
}

func (e *engine) answer(ctx context.Context, expression string) (*query.Result, error) {
	storage := &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: e.Select}}
	q, err := e.NewInstantQuery(ctx, storage, nil, expression, engineTime)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	vector, err := q.Exec(ctx).Vector()
	if err != nil {
		return nil, err
	}
	result := &query.Result{Time: engineTime}
	for _, s := range vector {
		labels := s.Metric.Map()
		delete(labels, "__name__")
		result.Samples = append(result.Samples, query.Sample{Labels: labels, Value: s.F, Time: time.UnixMilli(s.T)})
	}
	return result, nil
}

// randomExpression returns a template of a query, whose series have the labels a to d.
func randomExpression(r *rand.Rand, depth int) string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	names := func() string {
		var some []string
		for _, label := range []string{"a", "b", "c", "d", "le"} {
			if r.IntN(3) == 0 {
				some = append(some, label)
			}
		}
		return strings.Join(some, ",")
	}
	if depth == 0 {
		const all = "{<<.LabelMatchers>>}"
		return pick("x", "y") + pick(all, all, all, `{<<.LabelMatchers>>,d!="d1"}`, `{d="d1"}`, all+" offset 30s", `{a=~"<<index .LabelValuesByName \"a\">>",c=~".+"}`)
	}
	of := func() string { return randomExpression(r, depth-1) }
	vector := func() string { return randomExpression(r, 0) }
	switch r.IntN(14) {
	case 12: // a ratio on what both sides are grouped by
		by := names()
		return "sum by (" + by + ") (" + vector() + ") / on (" + by + ") sum by (" + by + ") (" + vector() + ")"
	case 13: // a condition that the selector does not change
		return pick("sum ", "sum by (d) ") + "(" + of() + ") " + pick("and", "unless") + pick(" ", " on ("+names()+") ") + pick("sum ", "sum by (d) ") + `(y{d="d1"})`
	case 0, 1, 2, 3:
		return pick("sum", "sum", "avg", "min", "max", "count", "stddev", "group") + pick("", " by ("+names()+")", " by (<<.GroupBy>>)", " without ("+names()+")") + " (" + of() + ")"
	case 4:
		return pick("quantile", "topk", "bottomk", "limitk") + pick("", " by ("+names()+")") + "(" + pick("1", "0.5") + ", " + of() + ")"
	case 5:
		return pick("rate", "increase", "max_over_time", "avg_over_time", "absent_over_time") + "(" + strings.Replace(strings.Replace(vector(), " offset 30s", "", 1), "}", "}[2m]", 1) + ")"
	case 6:
		if r.IntN(4) == 0 {
			return "histogram_quantile(0.5, " + of() + ")"
		}
		return pick("abs", "ceil", "-", "sort", "absent") + "(" + of() + ")"
	case 7:
		// Without operators, whose results over a range the engine has in random order, in which it then adds them up.
		return "max_over_time(" + pick("", "sum ", "avg by ("+names()+") ", "stddev without ("+names()+") ") + "(" + vector() + ")[2m:30s])"
	case 8:
		return fmt.Sprintf(pick(`label_replace(%s, "a", "$1", "b", "(.*)")`, "vector(scalar(%s))", "(%s)", "2 * (%s)", "(%s) > 1", "(%s) == bool 1", "(%s) or vector(0)", "(%s) / scalar(count(y))"), of())
	default:
		return "(" + of() + ") " + pick("+", "-", "/", "*", ">", "and", "or", "unless") + " " + pick("", "", "on ("+names()+") ", "ignoring ("+names()+") ") + pick("", "", "", "", "group_left ") + "(" + of() + ")"
	}
}

// randomSeries adds series whose sums depend on their order.
func randomSeries(r *rand.Rand, e *engine, age func(*rand.Rand) time.Duration) {
	e.series = nil
	seen := map[string]bool{}
	for range 150 {
		labels := map[string]string{"__name__": []string{"x", "y"}[r.IntN(2)], "namespace": "shop"}
		for _, label := range []string{"a", "b", "c", "d"} {
			if value := r.IntN(4); value > 0 || label == "a" {
				value = max(value, 1)
				labels[label] = []string{"", label + "1", strings.ToUpper(label) + "1", label + ".1"}[value]
			}
		}
		if r.IntN(8) == 0 {
			labels["namespace"] = "bank"
		}
		if r.IntN(3) == 0 {
			labels["le"] = []string{"1", "2", "+Inf"}[r.IntN(3)]
		}
		if key := fmt.Sprint(labels); seen[key] {
			continue
		} else {
			seen[key] = true
		}
		values := make([]float64, 6)
		for i := range values {
			values[i] = r.NormFloat64() * math.Pow(10, float64(r.IntN(20)))
		}
		if r.IntN(20) == 0 {
			values[5] = []float64{math.NaN(), math.Inf(1)}[r.IntN(2)]
		}
		e.addUntil(engineTime.Add(-age(r)), labels, values...)
	}
}

// randomSelector returns requirements of which most compare labels with one value.
func randomSelector(r *rand.Rand) string {
	var all []string
	for _, label := range []string{"a", "b", "c"} {
		value := []string{"%[1]s1", "%[2]s1", "%[1]s.1", "%[1]s1", "%[2]s1", "%[1]s.1", "%[1]sx1"}[r.IntN(7)]
		form := []string{"", "", "", "%s=" + value, "%s=" + value, "%s in (" + value + ")", "%[1]s!=" + value, "%[1]s in (%[1]s1,%[2]s1)", "%[1]s=", "%[1]s"}[r.IntN(10)]
		if label == "a" { // which templates use
			form = "%s=" + value
		}
		if form != "" {
			text := fmt.Sprintf(form+"%.0[2]s", label, strings.ToUpper(label))
			all = append(all, text)
		}
	}
	return strings.Join(all, ",")
}

// bits returns a result in a form in which equal texts are equal bits.
func bits(result *query.Result, err error) []string {
	if err != nil {
		return []string{"an error"}
	}
	lines := []string{}
	for _, s := range result.Samples {
		lines = append(lines, fmt.Sprintf("%v %x %d", s.Labels, math.Float64bits(s.Value), s.Time.UnixMilli()))
	}
	slices.Sort(lines)
	return lines
}

// What an evaluation of several queries yields for each of them is what its own query yields, to the bit:
// for random series, rules and selectors, by Prometheus' own engine.
func TestBatchYieldsWhatEachQueryYields(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	e := newEngine(t)
	rounds := 1500
	if testing.Short() {
		rounds = 500
	}
	var saved, values int
	for range rounds {
		rule := v1alpha1.MetricRule{SeriesQuery: "x", MetricsQuery: randomExpression(r, r.IntN(4))}
		c := newCatalog(t, backend(nil, []v1alpha1.MetricRule{rule}), seriesOf("x", "namespace", "a"))
		randomSeries(r, e, func(*rand.Rand) time.Duration { return 0 })
		var queries []query.Query
		for range 8 {
			mq, err := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "x", Series: selector(t, randomSelector(r))})
			if err == nil && mq.Query.Batch != (query.Batch{}) && !slices.Contains(queries, mq.Query) {
				queries = append(queries, mq.Query)
			}
		}
		synctest.Test(t, func(t *testing.T) {
			v := query.NewEvaluator(clock.RealClock{}, func() float64 { return 0 }, func(string) (query.Source, bool) { return e, true }, 200)
			alone := map[query.Query][]string{}
			for _, q := range queries {
				alone[q] = bits(v.Query(t.Context(), q))
			}
			time.Sleep(15 * time.Second)
			before := len(e.expressions)
			for _, q := range queries {
				asked := len(e.expressions)
				together := bits(v.Query(t.Context(), q))
				if len(e.expressions) == asked {
					saved, values = saved+1, values+len(together)
				}
				if diff := cmp.Diff(alone[q], together); diff != "" {
					t.Errorf("%s, of the rule %s, with the others (-alone +together):\n%s\n%s", q.Expression, rule.MetricsQuery, diff, strings.Join(e.expressions[before:], "\n"))
				}
			}
			synctest.Wait()
		})
		if t.Failed() {
			return
		}
	}
	if saved < rounds/3 || values < rounds {
		t.Errorf("only %d queries were not sent, with %d values", saved, values)
	}
}
