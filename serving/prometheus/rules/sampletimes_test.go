// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// newestOf returns the time of a series' newest sample.
func newestOf(s storage.Series) time.Time {
	var newest int64
	for it := s.Iterator(nil); it.Next() != chunkenc.ValNone; {
		newest = it.AtT()
	}
	return time.UnixMilli(newest)
}

// values returns the values of a result, to the bit, by labels, which are unique.
func values(result *query.Result) map[string]string {
	all := map[string]string{}
	for _, s := range result.Samples {
		all[fmt.Sprint(s.Labels)] = fmt.Sprintf("%x", s.Value)
	}
	return all
}

func TestSampleTimes(t *testing.T) {
	e := newEngine(t)
	ago := func(seconds int) time.Time { return engineTime.Add(-time.Duration(seconds) * time.Second) }
	for i, seconds := range []int{10, 20, 50, 400} {
		e.addUntil(ago(seconds), map[string]string{"__name__": "x", "pod": fmt.Sprint("p", i), "app": fmt.Sprint("a", i/2), "le": "+Inf"}, 1, 2, 3, 4)
	}
	e.addUntil(ago(30), map[string]string{"__name__": "y", "app": "a0"}, 5, 6)
	e.addUntil(ago(40), map[string]string{"__name__": "y", "app": "a1"}, 7, 8)
	// The scrape after the sample of 70 s ago failed.
	e.addUntil(ago(40), map[string]string{"__name__": "z", "app": "a1"}, 1, 2, 3, math.Float64frombits(value.StaleNaN))
	e.addUntil(ago(10), map[string]string{"__name__": "z", "app": "a0"}, 1, 2, 3, 4)
	tests := map[string]map[string]int{
		`x`:                          {"p0": 10, "p1": 20, "p2": 50},
		`-x`:                         {"p0": 10, "p1": 20, "p2": 50},
		`x offset 30s`:               {"p0": 40, "p1": 50, "p2": 50},
		`rate(x[2m])`:                {"p0": 10, "p1": 20, "p2": 50},
		`clamp_max(x, 3) * 2 > 1`:    {"p0": 10, "p1": 20, "p2": 50},
		`last_over_time(x[10m])`:     {"p0": 10, "p1": 20, "p2": 50, "p3": 400},
		`sum(x)`:                     {"": 50},
		`sum by (app) (x)`:           {"a0": 20, "a1": 50},
		`max without (pod, le) (x)`:  {"a0": 20, "a1": 50},
		`topk(1, x{app="a0"})`:       {"p0": 10},
		`quantile(0.5, x{pod="p0"})`: {"": 10},
		`histogram_quantile(0.5, x)`: {"p0": 10, "p1": 20, "p2": 50},
		`label_replace(x, "pod", "z", "pod", "p1")`:              {"p0": 10, "z": 20, "p2": 50},
		`sum by (app) (x) / on (app) y`:                          {"a0": 30, "a1": 50},
		`x{pod="p0"} / on (app) y{app="a0"}`:                     {"a0": 30},
		`y / ignoring (pod, le) x{pod="p2"}`:                     {"a1": 50},
		`sum by (app) (x) / y`:                                   {"a0": 30, "a1": 50},
		`min by (app) (x) + on () group_right () sum(y)`:         nil,
		`max by (app) (x) or y`:                                  {"a0": 20, "a1": 50},
		`max by (app) (x) > 3 or y`:                              {"a0": 20, "a1": 50},
		`max by (app) (x) > 4 or y`:                              {"a0": 30, "a1": 40},
		`sum by (app) (rate(z[2m]))`:                             {"a0": 10, "a1": 70},
		`max_over_time(z[2m:30s])`:                               nil,
		`sum(x) + sum(y)`:                                        {"": 50},
		`sum(y{app="a0"}) + sum(y{app="a1"}) - sum(x{app="a0"})`: {"": 40},
		`label_replace(x, "pod", "$1", "__name__", "(.*)")`:      nil,
		`label_join(x, "pod", "-", "__name__", "app")`:           nil,
		`y + fill(0) z`:                                          nil,
		`x and on () y`:                                          {"p0": 10, "p1": 20, "p2": 50},
		`y or vector(7)`:                                         {"a0": 30, "a1": 40, "": 0},
		`y > 100 or vector(7)`:                                   {"": 0},
		`y unless on (app) x{app="a1"}`:                          {"a0": 30},
		`y and on () vector(1)`:                                  {"a0": 30, "a1": 40},
		`time() - y`:                                             {"a0": 30, "a1": 40},
		`{app="a0"}`:                                             nil,
		`absent(x)`:                                              nil,
		`x / scalar(sum(y))`:                                     nil,
		`scalar(sum(x))`:                                         nil,
		`count_values("v", x)`:                                   nil,
		`max_over_time(rate(x[1m])[5m:1m])`:                      nil,
		`vector(scalar(sum(x)))`:                                 nil,
		`sum(topk(scalar(sum(y)), x))`:                           nil,
		`1`:                                                      nil,
		`x +`:                                                    nil,
	}
	for expression, want := range tests {
		with, known := promql.WithSampleTimes(expression, true)
		if known != (want != nil) {
			t.Errorf("%s: the times are known: %t (%s)", expression, known, with)
		}
		if !known {
			continue
		}
		plain, err := e.answer(t.Context(), expression)
		if err != nil {
			t.Fatal(expression, err)
		}
		timed, err := e.answer(t.Context(), with)
		if err != nil {
			t.Fatal(with, err)
		}
		timed.ReadSampleTimes(promql.SampleTimeLabel)
		if diff := cmp.Diff(values(plain), values(timed)); diff != "" {
			t.Errorf("%s: %s", with, diff)
		}
		got := map[string]int{}
		for _, s := range timed.Samples {
			seconds := int(s.Age.Seconds())
			switch {
			case s.Age == query.EndedAge:
				seconds = -1
			case engineTime.Sub(s.Time) != s.Age:
				t.Errorf("%s: a sample of %s has the age %s", expression, s.Time, s.Age)
			}
			got[s.Labels["pod"]+strings.Repeat(s.Labels["app"], 1-min(1, len(s.Labels["pod"])))] = seconds
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: the ages (-want +got):\n%s\n%s", expression, diff, with)
		}
	}
}

// For random series and queries, by Prometheus' own engine: asking for sample times changes no value, each has one, and
// stays the same without the series that are older than its time.
func TestSampleTimesAreThoseOfTheOldestSeries(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	e := newEngine(t)
	known, checked := 0, 0
	for range 1000 {
		expression := strings.NewReplacer("<<.LabelMatchers>>", `namespace="shop"`, "<<.GroupBy>>", "a", `<<index .LabelValuesByName "a">>`, "a1").
			Replace(randomExpression(r, r.IntN(4)))
		ended := r.IntN(2) == 0
		with, ok := promql.WithSampleTimes(expression, ended)
		if !ok {
			continue
		}
		randomSeries(r, e, func(r *rand.Rand) time.Duration { return time.Duration(r.IntN(300_000)) * time.Millisecond })
		plain, failed := e.answer(t.Context(), expression)
		timed, err := e.answer(t.Context(), with)
		if failed != nil || err != nil {
			if failed == nil {
				t.Fatalf("%s: %v", with, err)
			}
			continue
		}
		known++
		timed.ReadSampleTimes(promql.SampleTimeLabel)
		if diff := cmp.Diff(values(plain), values(timed)); diff != "" {
			t.Fatalf("%s (-without +with times): %s", with, diff)
		}
		if strings.Contains(expression, "and") || strings.Contains(expression, "unless") {
			continue // whose conditions may be older
		}
		all := e.series
		for _, s := range timed.Samples {
			if s.Age == query.EndedAge {
				t.Fatalf("%s: %v has no time", with, s.Labels)
			}
			e.series = slices.DeleteFunc(slices.Clone(all), func(o storage.Series) bool { return newestOf(o).Before(s.Time) })
			without, err := e.answer(t.Context(), expression)
			if err != nil {
				t.Fatal(err)
			}
			checked++
			if got, want := values(without)[fmt.Sprint(s.Labels)], fmt.Sprintf("%x", s.Value); got != want {
				t.Fatalf("%s: %v is %s, and %s without series older than its sample of %s ago", with, s.Labels, want, got, s.Age)
			}
		}
		e.series = all
	}
	if known < 200 || checked < 2000 {
		t.Errorf("only %d queries with known times, and %d values", known, checked)
	}
}

// What is asked grows with the query, not with a power of it, and yields no times of what the result lacks.
func TestSampleTimesAreAsFewAsValues(t *testing.T) {
	var terms []string
	for i := range 200 {
		terms = append(terms, fmt.Sprintf("sum(x{a=%q})", fmt.Sprint("a", i)))
	}
	sum := strings.Join(terms, " + ")
	if with, known := promql.WithSampleTimes(sum, true); !known || len(with) > 12*len(sum) {
		t.Errorf("%t, %d bytes of %d", known, len(with), len(sum))
	}
	e := newEngine(t)
	for i := range 50 {
		e.add(map[string]string{"__name__": "y", "pod": fmt.Sprint(i)}, float64(i))
	}
	for _, expression := range []string{"topk(2, y)", "bottomk(2, y)", "y > 47", "y and (y > 47)", "y unless (y <= 47)", "sum by (pod) (y) > 47", "(y > 47) or (y > 48)"} {
		with, _ := promql.WithSampleTimes(expression, true)
		result, err := e.answer(t.Context(), with)
		if err != nil || len(result.Samples) != 4 {
			t.Errorf("%s: %d samples, %v", with, len(result.Samples), err)
		}
	}
}
