// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/test/heap"
)

// resultOf returns results of n kilobytes.
func resultOf(n int) func(context.Context, string, time.Time) (*Result, error) {
	return func(_ context.Context, _ string, at time.Time) (*Result, error) {
		return &Result{Time: at, Samples: make([]Sample, n), Bytes: n * 1000}, nil
	}
}

// cached returns the number of cached queries, and the kilobytes of their results.
func (f *fixture) cached() (queries, kilobytes int) {
	f.Evaluator.mu.Lock()
	defer f.Evaluator.mu.Unlock()
	return len(f.cache.entries), f.cache.total.bytes / 1000
}

func TestQueriesExpire(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.setEvaluate(resultOf(10))
		stop := f.subscribe(testQuery("subscribed"), func(*Result, error) {})
		long := Query{Source: "p", Expression: "long", Interval: time.Hour}
		for _, q := range []Query{testQuery("once"), testQuery("often"), long} {
			_, _ = f.query(q)
		}
		for range 24 { // six minutes
			time.Sleep(15 * time.Second)
			_, _ = f.query(testQuery("often"))
		}
		if queries, kilobytes := f.cached(); queries != 3 || kilobytes != 30 {
			t.Errorf("%d queries with %d kB", queries, kilobytes)
		}
		stop()
		time.Sleep(5 * time.Hour)
		if queries, kilobytes := f.cached(); queries != 0 || kilobytes != 0 {
			t.Errorf("in the end %d queries with %d kB", queries, kilobytes)
		}
		f.Evaluator.mu.Lock()
		defer f.Evaluator.mu.Unlock()
		if len(f.queues) != 0 || len(f.cache.tenants) != 0 || f.cache.total != (usage{}) {
			t.Errorf("in the end %d sources, %d tenants, %+v", len(f.queues), len(f.cache.tenants), f.cache.total)
		}
	})
}

func TestMaxQueries(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.limits.maxQueries = 5
		defer f.subscribe(testQuery("subscribed"), func(*Result, error) {})()
		for i := range 100 {
			f.mustQuery(testQuery(fmt.Sprint(i)))
			f.mustQuery(testQuery("often"))
			if queries, _ := f.cached(); queries > 3 {
				t.Fatalf("%d queries", queries)
			}
		}
		for i := range 5 {
			defer f.subscribe(testQuery(fmt.Sprint("subscribed", i)), func(*Result, error) {})()
		}
		synctest.Wait()
		if _, err := f.query(testQuery("new")); reasonOf(err) != ReasonOverloaded {
			t.Errorf("while all have subscribers: %v", err)
		}
	})
}

func TestMaxCachedBytes(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.limits.maxCachedBytes = 160_100
		s.setEvaluate(resultOf(40))
		for i := range 10 {
			if _, err := f.Query(t.Context(), testQuery(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
			if _, kilobytes := f.cached(); kilobytes > 80 {
				t.Fatalf("%d kB", kilobytes)
			}
		}
		var mu sync.Mutex
		var reasons []Reason
		for _, e := range []string{"x", "y", "z"} {
			defer f.subscribe(testQuery(e), func(_ *Result, err error) {
				mu.Lock()
				defer mu.Unlock()
				reasons = append(reasons, reasonOf(err))
			})()
			synctest.Wait()
		}
		mu.Lock()
		defer mu.Unlock()
		if len(reasons) != 3 || reasons[2] != ReasonTooLarge {
			t.Errorf("beyond what has subscribers: %q", reasons)
		}
	})
}

func TestMaxResultAge(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.setEvaluate(resultOf(40))
		defer f.subscribe(testQuery("a"), func(*Result, error) {})()
		synctest.Wait()
		s.setEvaluate(down)
		time.Sleep(23 * time.Hour)
		if _, kilobytes := f.cached(); kilobytes != 40 {
			t.Errorf("%d kB", kilobytes)
		}
		time.Sleep(2 * time.Hour)
		if _, kilobytes := f.cached(); kilobytes != 0 {
			t.Errorf("%d kB that are too old", kilobytes)
		}
	})
}

// BenchmarkCacheMemory measures the memory of a cached query, without its expression: 5,000 of
// 100 namespaces, each with a result for one object, with and without a subscriber.
func BenchmarkCacheMemory(b *testing.B) {
	const n, length = 5000, 300
	for name, subscribe := range map[string]bool{"polled": false, "subscribed": true} {
		b.Run(name, func(b *testing.B) {
			s := &fakeSource{evaluate: func(_ context.Context, expression string, at time.Time) (*Result, error) {
				return &Result{Time: at, Samples: []Sample{{Labels: map[string]string{"pod": strings.Clone(expression[:20])}, Time: at, Value: 1}}}, nil
			}}
			for b.Loop() {
				before := heap.InUse()
				d := NewEvaluator(clock.RealClock{}, func() float64 { return 0 }, func(string) (Source, bool) { return s, true }, 200)
				stops := make([]func(), 0, n)
				for i := range n {
					q := Query{Source: "p", Interval: time.Hour, Tenant: fmt.Sprintf("namespace-%d", i%100),
						Expression: fmt.Sprintf("%020d%s", i, strings.Repeat("x", length-20))}
					if subscribe {
						stops = append(stops, d.Subscribe(q, time.Time{}, func(*Result, error) {}))
					}
					if _, err := d.Query(b.Context(), q); err != nil {
						b.Fatal(err)
					}
				}
				s.expressions, s.instants = nil, nil
				b.ReportMetric((heap.InUse()-before)/n-length, "B/query")
				for _, stop := range stops {
					stop()
				}
				runtime.KeepAlive(d)
			}
		})
	}
}
