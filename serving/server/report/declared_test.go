// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

// slowSource takes longer than a report for queries that contain "slow".
type slowSource struct{}

// Evaluate implements query.Source.
func (slowSource) Evaluate(ctx context.Context, q query.Query, at time.Time) (*query.Result, error) {
	expression := q.Expression
	if strings.Contains(expression, "slow") {
		select {
		case <-time.After(declaredTimeout + time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &query.Result{Time: at, Samples: []query.Sample{{Value: 1, Time: at}}}, nil
}

// declaredOf returns an ExternalMetric that each report evaluates again.
func declaredOf(namespace, name string) *v1alpha1.ExternalMetric {
	m := &v1alpha1.ExternalMetric{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1}}
	m.Spec.Query, m.Spec.Interval = name, &metav1.Duration{Duration: time.Second}
	return m
}

// TestDeclaredReportIsFair: slow queries do not hide the state of other metrics for long,
// neither in other namespaces nor in their own.
func TestDeclaredReportIsFair(t *testing.T) {
	many := func(n int, in func(i int) string) []*v1alpha1.ExternalMetric {
		var all []*v1alpha1.ExternalMetric
		for i := range n {
			all = append(all, declaredOf(in(i), fmt.Sprintf("slow%03d", i)))
		}
		return all
	}
	one := func(int) string { return "aaa" }
	tests := map[string]struct {
		metrics []*v1alpha1.ExternalMetric
		// fast is the first report in which the quick metric has values, and all the first
		// in which every metric has.
		fast, all int
	}{
		"of another namespace":       {append(many(60, one), declaredOf("shop", "quick")), 1, 3},
		"of the same namespace":      {append(many(100, one), declaredOf("aaa", "xquick")), 4, 5},
		"of more namespaces than 32": {append(many(40, func(i int) string { return fmt.Sprintf("n%02d", i) }), declaredOf("shop", "quick")), 2, 3},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &Reporter{Catalog: rules.NewCatalog(restmapping.NewDirectory(nil, clock.RealClock{}), clock.RealClock{})}
				// Each metric has a source of its own: the evaluator's limits do not matter here.
				var sources []v1alpha1.SourceSpec
				for _, m := range tc.metrics {
					m.Spec.Source = m.Name
					sources = append(sources, v1alpha1.SourceSpec{Name: m.Name, Prometheus: &v1alpha1.PrometheusSource{URL: "http://prometheus"}})
				}
				r.Catalog.Apply(&v1alpha1.MetricsBackendSpec{Sources: sources})
				r.Catalog.Declare(nil, tc.metrics)
				r.Evaluator = query.NewEvaluator(clock.RealClock{}, func() float64 { return .5 },
					func(string) (query.Source, bool) { return slowSource{}, true }, 200)
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { r.Evaluator.Run(ctx) })
				for number := 1; number <= 20; number++ {
					began := time.Now()
					for _, h := range r.DeclaredReport(ctx).Metrics {
						if quick := strings.Contains(h.Name, "quick"); !h.Ready && (quick && number >= tc.fast || number >= tc.all) {
							t.Errorf("report %d says of %s/%s: %s: %s", number, h.Namespace, h.Name, h.Reason, h.Message)
						}
					}
					if took := time.Since(began); took > declaredTimeout {
						t.Errorf("report %d took %s", number, took)
					}
					time.Sleep(3 * time.Second)
				}
				cancel()
				running.Wait()
			})
		})
	}
}

// TestFairQueue: the namespace with the fewest running queries comes first, and in each
// the oldest result.
func TestFairQueue(t *testing.T) {
	second := func(s int64) time.Time { return time.Unix(1_700_000_000+s, 0) }
	tests := map[string]struct {
		// metrics are in the report's order, as NAMESPACE/NAME; the queries of names that start
		// with s do not end.
		metrics []string
		pending []pendingQuery
		want    []string
	}{
		"in the report's order at first": {
			metrics: []string{"a/x", "a/y", "b/z"},
			want:    []string{"a/x", "a/y", "b/z"},
		},
		"a namespace whose queries do not end": {
			metrics: []string{"a/s1", "a/s2", "a/s3", "a/s4", "b/x", "b/y", "b/z"},
			want:    []string{"a/s1", "b/x", "b/y", "b/z", "a/s2", "a/s3", "a/s4"},
		},
		"two of them": {
			metrics: []string{"a/s1", "a/s2", "a/s3", "b/s1", "b/s2", "c/s1"},
			want:    []string{"a/s1", "b/s1", "c/s1", "a/s2", "b/s2", "a/s3"},
		},
		"the oldest result first": {
			metrics: []string{"a/s1", "a/s2", "b/s1", "b/s2", "c/s1"},
			pending: []pendingQuery{{resultTime: second(5)}, {resultTime: second(3)}, {resultTime: second(4)}, {resultTime: second(1)}, {}},
			want:    []string{"c/s1", "b/s2", "a/s2", "b/s1", "a/s1"},
		},
		"without a result the least recently queried first": {
			metrics: []string{"a/s1", "a/s2", "a/s3", "b/s1"},
			pending: []pendingQuery{{lastReport: 2}, {lastReport: 1}, {lastReport: 2, resultTime: second(1)}, {lastReport: 1}},
			want:    []string{"a/s2", "b/s1", "a/s1", "a/s3"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			declared := make([]rules.Declared, len(tc.metrics))
			pending := make([]pendingQuery, len(tc.metrics))
			copy(pending, tc.pending)
			for i, metric := range tc.metrics {
				declared[i].Namespace, declared[i].Name, _ = strings.Cut(metric, "/")
				pending[i].metric = i
			}
			slices.Reverse(pending) // their order must not matter
			queue := newFairQueue(declared, pending)
			var got []string
			for len(queue) > 0 {
				metric, namespace := queue.next()
				got = append(got, tc.metrics[metric])
				if !strings.HasPrefix(declared[metric].Name, "s") {
					namespace.running--
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestQueryLog: it forgets metrics that no longer exist.
func TestQueryLog(t *testing.T) {
	of := func(expressions ...string) []rules.Declared {
		var all []rules.Declared
		for _, e := range expressions {
			all = append(all, rules.Declared{MetricQuery: query.MetricQuery{Query: query.Query{Expression: e}}})
		}
		return all
	}
	var l queryLog
	first := l.startReport(of("a", "b"))
	l.record(query.Query{Expression: "a"}, first)
	l.record(query.Query{Expression: "b"}, first)
	second := l.startReport(of("b", "c"))
	l.record(query.Query{Expression: "c"}, second)
	l.record(query.Query{Expression: "c"}, first) // an earlier report
	want := map[query.Query]uint64{{Expression: "b"}: 1, {Expression: "c"}: 2}
	if diff := cmp.Diff(want, l.last); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHealthOf(t *testing.T) {
	at := time.Unix(1700000000, 0)
	base := v1alpha1.DeclaredHealth{Kind: "ExternalMetric", Namespace: "shop", Name: "m", UID: "u", Generation: 3}
	declared := rules.Declared{DeclaredHealth: base, MetricQuery: query.MetricQuery{Origin: "ExternalMetric shop/m"}}
	sample := func(value float64, of map[string]string) query.Sample {
		return query.Sample{Value: value, Labels: of, Time: at}
	}
	evaluationErr := &query.EvaluationError{Failure: &query.Failure{Source: "main", Reason: query.ReasonTimeout, Message: "no answer in 10s"}, FailedIntervals: 3}
	static := 7.0
	tests := map[string]struct {
		declared func(*rules.Declared)
		samples  []query.Sample
		err      error
		want     func(*v1alpha1.DeclaredHealth)
	}{
		"one value": {
			samples: []query.Sample{sample(2.5, nil)},
			want: func(h *v1alpha1.DeclaredHealth) {
				h.Ready, h.Value, h.Values, h.Time = true, "2500m", 1, metav1.NewTime(at)
			},
		},
		"several values": {
			samples: []query.Sample{sample(1, map[string]string{"a": "b"}), sample(2, nil)},
			want:    func(h *v1alpha1.DeclaredHealth) { h.Ready, h.Values, h.Time = true, 2, metav1.NewTime(at) },
		},
		"no value": {
			want: func(h *v1alpha1.DeclaredHealth) {
				h.Reason, h.Message = ReasonNoValues, "the query answers no series: check that it selects some in this namespace"
			},
		},
		"no number": {
			samples: []query.Sample{sample(math.NaN(), nil)},
			want: func(h *v1alpha1.DeclaredHealth) {
				h.Reason, h.Message = "NaN", "there is no value, since the series {} has none: NaN: the value is NaN (not a number, such as 0/0); correct the query"
			},
		},
		"one series is no number": {
			samples: []query.Sample{sample(1, nil), sample(math.NaN(), map[string]string{"a": "b"})},
			want: func(h *v1alpha1.DeclaredHealth) {
				h.Reason = "NaN"
				h.Message = `there is no value, since the series {a="b"} has none: NaN: the value is NaN (not a number, such as 0/0); correct the query, or set invalidValuesPolicy to Omit in ExternalMetric shop/m, which serves the other series`
			},
		},
		"the rest is a value": {
			declared: func(d *rules.Declared) { d.MetricQuery.OmitInvalid = true },
			samples:  []query.Sample{sample(1, nil), sample(math.NaN(), map[string]string{"a": "b"})},
			want: func(h *v1alpha1.DeclaredHealth) {
				h.Ready, h.Value, h.Values, h.Time = true, "1", 1, metav1.NewTime(at)
			},
		},
		"an object without a value": {
			declared: func(d *rules.Declared) { d.MetricQuery.Object = "web" },
			samples:  []query.Sample{sample(math.NaN(), nil)},
			want: func(h *v1alpha1.DeclaredHealth) {
				h.Reason, h.Message = "NaN", "the value is NaN (not a number, such as 0/0)"
			},
		},
		"the source fails": {
			err:  evaluationErr,
			want: func(h *v1alpha1.DeclaredHealth) { h.Reason, h.Message = "Timeout", "no answer in 10s" },
		},
		"a fallback": {
			declared: func(d *rules.Declared) { d.MetricQuery.Fallback = &query.Fallback{AfterFailures: 3, Static: &static} },
			err:      evaluationErr,
			want: func(h *v1alpha1.DeclaredHealth) {
				h.Fallback, h.Value, h.Values, h.Reason, h.Message = true, "7", 1, "Timeout", "no answer in 10s"
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := declared
			if tc.declared != nil {
				tc.declared(&d)
			}
			var answer *query.Result
			if tc.err == nil {
				answer = &query.Result{Time: at, Samples: tc.samples}
			}
			values, err := d.MetricQuery.Values(answer, tc.err)
			got, want := healthOf(&d, values, err), base
			tc.want(&want)
			if tc.err != nil {
				got.Time = metav1.Time{} // a stand-in's time is that of the failure
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	d := declared
	d.Reason, d.Message = "InvalidQuery", "it is empty"
	want := base
	want.Reason, want.Message = d.Reason, d.Message
	if diff := cmp.Diff(want, healthOf(&d, nil, nil)); diff != "" {
		t.Errorf("invalid (-want +got):\n%s", diff)
	}
}

// TestHealthySince: a query that failed before the source was healthy failed with the source.
func TestHealthySince(t *testing.T) {
	began := time.Date(2026, 8, 30, 12, 0, 0, 0, time.UTC)
	since := healthySince([]v1alpha1.SourceHealth{
		{Name: "good", Healthy: true, Since: metav1.NewTime(began)}, {Name: "bad", Since: metav1.NewTime(began)},
	})
	for name, test := range map[string]struct {
		source string
		at     time.Time
		want   bool
	}{
		"well":              {"good", began.Add(time.Second), true},
		"just now":          {"good", began, true},
		"not yet":           {"good", began.Add(-time.Second), false},
		"not any more":      {"bad", began.Add(time.Second), false},
		"there is none now": {"gone", began.Add(time.Second), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := since(test.source, test.at); got != test.want {
				t.Errorf("it is %t", got)
			}
		})
	}
}
