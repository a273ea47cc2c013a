// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// fakeSource is a Source that returns the number of its evaluations after its latency, or what
// a test sets.
type fakeSource struct {
	latency  time.Duration
	evaluate func(ctx context.Context, expression string, at time.Time) (*Result, error)

	mu          sync.Mutex
	expressions []string
	instants    []time.Time
	// running and most count evaluations under way.
	running, maxRunning int
}

func (s *fakeSource) Evaluate(ctx context.Context, q Query, at time.Time) (*Result, error) {
	expression := q.Expression
	s.mu.Lock()
	s.expressions, s.instants = append(s.expressions, expression), append(s.instants, at)
	n := len(s.expressions)
	s.running++
	s.maxRunning = max(s.maxRunning, s.running)
	reply := s.evaluate
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.running--
		s.mu.Unlock()
	}()
	if s.latency > 0 {
		select {
		case <-time.After(s.latency):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if reply != nil {
		return reply(ctx, expression, at)
	}
	return singleResult(at, float64(n)), nil
}

func (s *fakeSource) setEvaluate(reply func(ctx context.Context, expression string, at time.Time) (*Result, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evaluate = reply
}

func (s *fakeSource) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.expressions)
}

// countOf returns the number of evaluations of an expression.
func (s *fakeSource) countOf(expression string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(s.expressions), func(e string) bool { return e != expression }))
}

// singleResult returns a result with one value.
func singleResult(at time.Time, value float64) *Result {
	return &Result{Time: at, Samples: []Sample{{Value: value, Time: at}}}
}

// down is the failure of a source that cannot be reached.
func down(context.Context, string, time.Time) (*Result, error) {
	return nil, fmt.Errorf("query: %w", &Failure{Reason: ReasonConnectionFailed, Message: "connection refused"})
}

func rejected(context.Context, string, time.Time) (*Result, error) {
	return nil, &Failure{Reason: ReasonRejected, Message: "parse error"}
}

// fixture is an Evaluator in a synctest bubble.
type fixture struct {
	*Evaluator
	t       testing.TB
	mu      sync.Mutex
	sources map[string]Source
}

func (f *fixture) lookup(name string) (Source, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.sources[name]
	return s, ok
}

func (f *fixture) setSource(name string, s Source) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s == nil {
		delete(f.sources, name)
		return
	}
	f.sources[name] = s
}

// withFixture runs a test in a bubble with one source, `p`.
func withFixture(t *testing.T, test func(t *testing.T, f *fixture, s *fakeSource)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &fakeSource{}
		f := &fixture{t: t, sources: map[string]Source{"p": s}}
		f.Evaluator = NewEvaluator(clock.RealClock{}, func() float64 { return 0 }, f.lookup, 200)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { f.Run(ctx) })
		test(t, f, s)
		cancel()
		running.Wait()
	})
}

func (f *fixture) subscribe(q Query, receive func(*Result, error)) (stop func()) {
	return f.Subscribe(q, time.Time{}, receive)
}

// testQuery returns a query of the source `p` with an interval of 15s.
func testQuery(expression string) Query {
	return Query{Source: "p", Expression: expression, Interval: 15 * time.Second}
}

// waitForSlot sleeps until shortly after the start of a slot of the query.
func waitForSlot(q Query) {
	time.Sleep(untilNext(slotsOf(q), time.Now()) + 100*time.Millisecond)
}

func (f *fixture) query(q Query) (float64, error) {
	f.t.Helper()
	a, err := f.Query(f.t.Context(), q)
	if err != nil {
		return 0, err
	}
	return a.Samples[0].Value, nil
}

// mustQuery returns the value of a query that must succeed.
func (f *fixture) mustQuery(q Query) float64 {
	f.t.Helper()
	v, err := f.query(q)
	if err != nil {
		f.t.Fatal(err)
	}
	return v
}

// reasonOf is that of an error.
func reasonOf(err error) Reason {
	var f *Failure
	if !errors.As(err, &f) {
		return ""
	}
	return f.Reason
}
