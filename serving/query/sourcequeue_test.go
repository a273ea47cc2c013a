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
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A source that does not answer: a thousand autoscalers on a hundred metrics neither
// hammer it nor hang on it.
func TestDeadSourceIsNotHammered(t *testing.T) {
	inWorld(t, Limits{Concurrency: 8, MaxWaiting: 2000}, func(t *testing.T, w *world, s *source) {
		const autoscalers, metrics = 1000, 100
		s.takes = 10 * time.Second
		s.set(func(context.Context, string, time.Time) (*Result, error) {
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
					if _, err := w.Query(ctx, asked(fmt.Sprintf("metric_%d", i%metrics))); reasonOf(err) != ReasonTimeout {
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
		most := s.most
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
			t.Errorf("98%% of those who asked waited up to %s", p)
		}
	})
}

func TestSuspendedSourceRecovers(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
		var mu sync.Mutex
		var heard []string
		for i := range 10 {
			e := fmt.Sprint(i)
			defer w.subscribe(asked(e), func(_ *Result, err error) {
				mu.Lock()
				defer mu.Unlock()
				heard = append(heard, string(reasonOf(err)))
			})()
		}
		synctest.Wait()
		s.set(down)
		time.Sleep(5 * time.Minute)
		s.set(nil)
		time.Sleep(maxBackoff)
		mu.Lock()
		heard = nil
		mu.Unlock()
		time.Sleep(15 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff(make([]string, 10), heard); diff != "" {
			t.Errorf("30s after the source answers again followers hear of failures:\n%s", diff)
		}
	})
}

// Followers of a source that fails hear of it once an interval, and no more often
// while it is suspended.
func TestFollowersHearOfAnOutage(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
		s.set(down)
		// Two that fail suspend the source.
		defer w.subscribe(asked("other"), func(*Result, error) {})()
		q := asked("a")
		toSlot(q)
		var failures []int
		defer w.subscribe(q, func(_ *Result, err error) {
			var o *EvaluationError
			if errors.As(err, &o) {
				failures = append(failures, o.FailedIntervals)
			}
		})()
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if got := slices.Compact(slices.Clone(failures)); len(got) != 17 || got[16] != 17 {
			t.Errorf("the failures of 17 intervals were told as %v", got)
		}
		if len(failures) > 17+12 {
			t.Errorf("%d failures were told in 17 intervals", len(failures))
		}
	})
}

// Questions that are too much for a source do not take it away from others.
func TestBadQuestionsDoNotSuspendGoodOnes(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
		s.set(func(ctx context.Context, expression string, at time.Time) (*Result, error) {
			if expression == "good" {
				return number(at, 1), nil
			}
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
			}
			return nil, &Failure{Reason: ReasonTimeout, Message: "query timed out"}
		})
		for i := range 5 {
			defer w.subscribe(asked(fmt.Sprintf("bad_%d", i)), func(*Result, error) {})()
		}
		good, bad := 0, 0
		for range 40 { // ten minutes
			time.Sleep(15 * time.Second)
			if _, err := w.ask(asked("good")); err == nil {
				good++
			} else {
				bad++
			}
		}
		if bad > 0 {
			t.Errorf("a good question was answered %d times and refused %d times", good, bad)
		}
	})
}

func TestOneBadQuestionSuspendsNothing(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
		s.set(func(_ context.Context, expression string, at time.Time) (*Result, error) {
			if expression == "good" {
				return number(at, 1), nil
			}
			return nil, &Failure{Reason: ReasonBadStatus, Message: "422"}
		})
		for _, e := range []string{"bad", "worse"} {
			defer w.subscribe(asked(e), func(*Result, error) {})()
		}
		for range 40 {
			time.Sleep(15 * time.Second)
			w.mustAsk(asked("good"))
		}
	})
}

func TestQueueIsFairAndBounded(t *testing.T) {
	inWorld(t, Limits{Concurrency: 3, MaxQueued: 5}, func(t *testing.T, w *world, s *source) {
		s.takes = time.Second
		var all sync.WaitGroup
		for _, e := range []string{"a", "b", "c", "d", "e"} {
			all.Go(func() { w.mustAsk(asked(e)) })
			synctest.Wait()
		}
		if _, err := w.ask(asked("f")); reasonOf(err) != ReasonOverloaded {
			t.Errorf("beyond the queue: %v", err)
		}
		all.Wait()
		// Two begin at the same moment.
		slices.Sort(s.asked[0:2])
		slices.Sort(s.asked[2:4])
		if diff := cmp.Diff([]string{"a", "b", "c", "d", "e"}, s.asked); diff != "" {
			t.Errorf("evaluated in another order:\n%s", diff)
		}
		if s.most != 2 {
			t.Errorf("%d at a time", s.most)
		}
		w.mustAsk(asked("f"))
	})
}

func TestQueuedCallersLeave(t *testing.T) {
	inWorld(t, Limits{Concurrency: 1}, func(t *testing.T, w *world, s *source) {
		s.takes = 10 * time.Second
		var all sync.WaitGroup
		all.Go(func() { w.mustAsk(asked("a")) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := w.Query(ctx, asked("b"))
		want := `source "p": Timeout: no answer before the request ended; 1 evaluations of this source are under way and 0 wait`
		if err == nil || err.Error() != want {
			t.Errorf("got %v", err)
		}
		all.Wait()
		if diff := cmp.Diff([]string{"a"}, s.asked); diff != "" {
			t.Errorf("a question that nobody waits for was evaluated:\n%s", diff)
		}
	})
}

func TestQueueEndsWithItsSource(t *testing.T) {
	inWorld(t, Limits{Concurrency: 3}, func(t *testing.T, w *world, s *source) {
		s.takes = 5 * time.Second
		s.set(down)
		began := time.Now()
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				if _, err := w.ask(asked(fmt.Sprint(i))); reasonOf(err) != ReasonConnectionFailed {
					t.Errorf("got %v", err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("those who waited in the queue were told after %s", took)
		}
		if n := s.count(); n > 4 {
			t.Errorf("%d evaluations", n)
		}
	})
}
