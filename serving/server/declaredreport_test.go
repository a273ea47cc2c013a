// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
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

// slowly is a source that takes longer than a report for whatever is called slow.
type slowly struct{}

// Evaluate implements query.Source.
func (slowly) Evaluate(ctx context.Context, expression string, at time.Time) (*query.Result, error) {
	if strings.Contains(expression, "slow") {
		select {
		case <-time.After(declaredTimeout + time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &query.Result{Time: at, Samples: []query.Sample{{Value: 1, Time: at}}}, nil
}

// declaredOf is an ExternalMetric that is asked for anew by each report.
func declaredOf(namespace, name string) *v1alpha1.ExternalMetric {
	m := &v1alpha1.ExternalMetric{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1}}
	m.Spec.Query, m.Spec.Interval = name, &metav1.Duration{Duration: time.Second}
	return m
}

// TestDeclaredReportTurns: queries that are slow hide the state of no other metric for
// long, neither of other namespaces nor of their own.
func TestDeclaredReportTurns(t *testing.T) {
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
		// fast is the report from which on a metric of a quick query has values, and all
		// that from which on every one has.
		fast, all int
	}{
		"of another namespace":       {append(many(60, one), declaredOf("shop", "quick")), 1, 3},
		"of the same namespace":      {append(many(100, one), declaredOf("aaa", "xquick")), 4, 5},
		"of more namespaces than 32": {append(many(40, func(i int) string { return fmt.Sprintf("n%02d", i) }), declaredOf("shop", "quick")), 2, 3},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := &valueMetrics{catalogue: rules.NewCatalogue(restmapping.NewDirectory(&noResources{}, clock.RealClock{}))}
				v.catalogue.Apply(&v1alpha1.MetricsBackendSpec{Sources: []v1alpha1.SourceSpec{prometheusAt("main", "http://prometheus")}})
				v.catalogue.Declare(nil, tc.metrics)
				// The evaluator's own queue is not what this is about.
				v.evaluator = query.NewEvaluator(clock.RealClock{}, func() float64 { return .5 },
					func(string) (query.Source, bool) { return slowly{}, true }, query.Limits{Concurrency: 1000})
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { v.evaluator.Run(ctx) })
				for number := 1; number <= 20; number++ {
					began := time.Now()
					for _, h := range v.declaredReport(ctx).Metrics {
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

// TestTeamQueue: places go to the namespace that has the fewest, and in each to what is
// known for longest.
func TestTeamQueue(t *testing.T) {
	second := func(s int64) time.Time { return time.Unix(1_700_000_000+s, 0) }
	tests := map[string]struct {
		// metrics are in the report's order, as NAMESPACE/NAME; those whose name begins with s
		// keep their place.
		metrics []string
		queued  []queuedMetric
		want    []string
	}{
		"in the report's order at first": {
			metrics: []string{"a/x", "a/y", "b/z"},
			want:    []string{"a/x", "a/y", "b/z"},
		},
		"a namespace that keeps its places": {
			metrics: []string{"a/s1", "a/s2", "a/s3", "a/s4", "b/x", "b/y", "b/z"},
			want:    []string{"a/s1", "b/x", "b/y", "b/z", "a/s2", "a/s3", "a/s4"},
		},
		"two that do": {
			metrics: []string{"a/s1", "a/s2", "a/s3", "b/s1", "b/s2", "c/s1"},
			want:    []string{"a/s1", "b/s1", "c/s1", "a/s2", "b/s2", "a/s3"},
		},
		"what was known longest ago first": {
			metrics: []string{"a/s1", "a/s2", "b/s1", "b/s2", "c/s1"},
			queued:  []queuedMetric{{cachedTime: second(5)}, {cachedTime: second(3)}, {cachedTime: second(4)}, {cachedTime: second(1)}, {}},
			want:    []string{"c/s1", "b/s2", "a/s2", "b/s1", "a/s1"},
		},
		"of what is not known what was asked for longest ago": {
			metrics: []string{"a/s1", "a/s2", "a/s3", "b/s1"},
			queued:  []queuedMetric{{lastReport: 2}, {lastReport: 1}, {lastReport: 2, cachedTime: second(1)}, {lastReport: 1}},
			want:    []string{"a/s2", "b/s1", "a/s1", "a/s3"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			declared := make([]rules.Declared, len(tc.metrics))
			queued := make([]queuedMetric, len(tc.metrics))
			copy(queued, tc.queued)
			for i, metric := range tc.metrics {
				declared[i].Namespace, declared[i].Name, _ = strings.Cut(metric, "/")
				queued[i].metric = i
			}
			slices.Reverse(queued) // their order is in them
			queue := newTenantQueue(declared, queued)
			var got []string
			for queue.Len() > 0 {
				metric, of := queue.next()
				got = append(got, tc.metrics[metric])
				if !strings.HasPrefix(declared[metric].Name, "s") {
					queue.done(of)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestAskedLog: it remembers what there still is.
func TestAskedLog(t *testing.T) {
	of := func(expressions ...string) []rules.Declared {
		var all []rules.Declared
		for _, e := range expressions {
			all = append(all, rules.Declared{MetricQuery: query.MetricQuery{Query: query.Query{Expression: e}}})
		}
		return all
	}
	var l queryLog
	first := l.beginReport(of("a", "b"))
	l.record(query.Query{Expression: "a"}, first)
	l.record(query.Query{Expression: "b"}, first)
	second := l.beginReport(of("b", "c"))
	l.record(query.Query{Expression: "c"}, second)
	l.record(query.Query{Expression: "c"}, first) // a report that began before
	want := map[query.Query]uint64{{Expression: "b"}: 1, {Expression: "c"}: 2}
	if diff := cmp.Diff(want, l.lastReports); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
