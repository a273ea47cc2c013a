// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A thousand autoscalers on a hundred metrics neither overload a source that does not respond,
// nor hang on it.
func TestDeadSourceIsNotOverloaded(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.limits.concurrency, f.limits.maxWaiting = 8, 2000
		const autoscalers, metrics = 1000, 100
		s.latency = 10 * time.Second
		s.setEvaluate(func(context.Context, string, time.Time) (*Result, error) {
			return nil, &Failure{Reason: ReasonTimeout, Message: "no answer in 10s"}
		})
		var all sync.WaitGroup
		var mu sync.Mutex
		var waited []time.Duration
		for i := range autoscalers {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 15 * time.Millisecond)
				for range 20 {
					began := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					if _, err := f.Query(ctx, testQuery(fmt.Sprintf("metric_%d", i%metrics))); reasonOf(err) != ReasonTimeout {
						t.Errorf("got %v", err)
					}
					cancel()
					mu.Lock()
					waited = append(waited, time.Since(began))
					mu.Unlock()
					time.Sleep(15 * time.Second)
				}
			})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		before := s.count()
		if before > 30 {
			t.Errorf("%d evaluations in the first minute", before)
		}
		s.mu.Lock()
		most := s.maxRunning
		s.mu.Unlock()
		if most > 8 {
			t.Errorf("%d evaluations at a time", most)
		}
		if n := runtime.NumGoroutine(); n > autoscalers+50 {
			t.Errorf("%d goroutines", n)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		// One at a time with pauses, and one at a time of those that have not failed yet;
		// each 10 s long.
		if n := s.count() - before; n > 36 {
			t.Errorf("%d evaluations in the next three minutes", n)
		}
		all.Wait()
		slices.Sort(waited)
		if p := waited[len(waited)*98/100]; p > 10*time.Second {
			t.Errorf("98%% of the callers waited up to %s", p)
		}
	})
}

func TestSourceRecovers(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		var mu sync.Mutex
		var received []string
		for i := range 10 {
			e := fmt.Sprint(i)
			defer f.subscribe(testQuery(e), func(_ *Result, err error) {
				mu.Lock()
				defer mu.Unlock()
				received = append(received, string(reasonOf(err)))
			})()
		}
		synctest.Wait()
		s.setEvaluate(down)
		time.Sleep(5 * time.Minute)
		s.setEvaluate(nil)
		time.Sleep(maxBackoff)
		mu.Lock()
		received = nil
		mu.Unlock()
		time.Sleep(15 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff(make([]string, 10), received); diff != "" {
			t.Errorf("30s after the source works again subscribers receive failures:\n%s", diff)
		}
	})
}

// Subscribers receive a failure once per interval, and no more often while the circuit breaker
// is open.
func TestSubscribersReceiveFailures(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.setEvaluate(down)
		// Two failing queries open the circuit breaker.
		defer f.subscribe(testQuery("other"), func(*Result, error) {})()
		q := testQuery("a")
		waitForSlot(q)
		var failures []int
		defer f.subscribe(q, func(_ *Result, err error) {
			var o *EvaluationError
			if errors.As(err, &o) {
				failures = append(failures, o.FailedIntervals)
			}
		})()
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if got := slices.Compact(slices.Clone(failures)); len(got) != 17 || got[16] != 17 {
			t.Errorf("the failures of 17 intervals were %v", got)
		}
		if len(failures) > 17+12 {
			t.Errorf("%d failures were received in 17 intervals", len(failures))
		}
	})
}

// Queries that are too expensive for a source do not make it fail for others.
func TestBadQueriesDoNotAffectOthers(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.setEvaluate(slowQueries)
		for i := range 5 {
			defer f.subscribe(testQuery(fmt.Sprint("slow", i)), func(*Result, error) {})()
		}
		for range 40 { // ten minutes
			time.Sleep(15 * time.Second)
			f.mustQuery(testQuery("good"))
		}
	})
}

func TestFewBadQueriesKeepBreakerClosed(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.setEvaluate(func(_ context.Context, expression string, at time.Time) (*Result, error) {
			if expression == "good" {
				return singleResult(at, 1), nil
			}
			return nil, &Failure{Reason: ReasonBadStatus, Message: "422"}
		})
		for _, e := range []string{"bad", "worse"} {
			defer f.subscribe(testQuery(e), func(*Result, error) {})()
		}
		for range 40 {
			time.Sleep(15 * time.Second)
			f.mustQuery(testQuery("good"))
		}
	})
}

// A source whose storage is partly down answers queries of the other parts.
func TestPartialResponsesKeepBreakerClosed(t *testing.T) {
	var back atomic.Bool
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.setEvaluate(func(_ context.Context, expression string, at time.Time) (*Result, error) {
			if expression == "back" && back.Load() {
				return singleResult(at, 1), nil
			}
			return nil, &Failure{Reason: ReasonPartialResponse, Message: "a store is down"}
		})
		for range 20 {
			for _, e := range []string{"back", "a", "b", "c"} {
				if _, err := f.query(testQuery(e)); reasonOf(err) != ReasonPartialResponse {
					t.Fatalf("got %v", err)
				}
			}
			time.Sleep(15 * time.Second)
		}
		back.Store(true)
		f.mustQuery(testQuery("back"))
	})
}

func TestQueueIsFairAndBounded(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.limits.concurrency, f.limits.maxQueued = 3, 5
		s.latency = time.Second
		var all sync.WaitGroup
		for _, e := range []string{"a", "b", "c", "d", "e"} {
			all.Go(func() { f.mustQuery(testQuery(e)) })
			synctest.Wait()
		}
		if _, err := f.query(testQuery("f")); reasonOf(err) != ReasonOverloaded {
			t.Errorf("beyond the queue: %v", err)
		}
		all.Wait()
		// Two begin at the same moment.
		slices.Sort(s.expressions[0:2])
		slices.Sort(s.expressions[2:4])
		if diff := cmp.Diff([]string{"a", "b", "c", "d", "e"}, s.expressions); diff != "" {
			t.Errorf("evaluated in another order:\n%s", diff)
		}
		if s.maxRunning != 2 {
			t.Errorf("%d at a time", s.maxRunning)
		}
		f.mustQuery(testQuery("f"))
	})
}

func TestQueuedCallerTimesOut(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.limits.concurrency = 1
		s.latency = 10 * time.Second
		var all sync.WaitGroup
		all.Go(func() { f.mustQuery(testQuery("a")) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := f.Query(ctx, testQuery("b"))
		want := `source "p": Timeout: no result before the request ended; 1 evaluations of this source are running and 0 are queued`
		if err == nil || err.Error() != want {
			t.Errorf("got %v", err)
		}
		all.Wait()
		if diff := cmp.Diff([]string{"a"}, s.expressions); diff != "" {
			t.Errorf("a query without callers was evaluated:\n%s", diff)
		}
	})
}

func TestQueueOfFailingSource(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.limits.concurrency = 3
		s.latency = 5 * time.Second
		s.setEvaluate(down)
		began := time.Now()
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				if _, err := f.query(testQuery(fmt.Sprint(i))); reasonOf(err) != ReasonConnectionFailed {
					t.Errorf("got %v", err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("queued callers got the failure after %s", took)
		}
		if n := s.count(); n > 4 {
			t.Errorf("%d evaluations", n)
		}
	})
}
