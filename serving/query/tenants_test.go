// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// of is a question of an owner.
func of(owner, expression string) Query {
	q := asked(expression)
	q.Tenant = owner
	return q
}

// slow answers at once, but for expressions that begin with "slow", which are too much
// for the source.
func slow(ctx context.Context, expression string, at time.Time) (*Result, error) {
	if !strings.HasPrefix(expression, "slow") {
		time.Sleep(20 * time.Millisecond)
		return number(at, 1), nil
	}
	select {
	case <-time.After(10 * time.Second):
	case <-ctx.Done():
	}
	return nil, &Failure{Reason: ReasonTimeout, Message: "query timed out: " + expression}
}

// However many slow queries one namespace polls, and whether they time out or break the
// connection: the questions of others are answered, all of them.
func TestOneOwnerTakesNoSourceFromOthers(t *testing.T) {
	broken := func(ctx context.Context, expression string, at time.Time) (*Result, error) {
		answer, err := slow(ctx, expression, at)
		if err != nil {
			err = &Failure{Reason: ReasonConnectionFailed, Message: "connection reset by peer"}
		}
		return answer, err
	}
	for name, reply := range map[string]func(context.Context, string, time.Time) (*Result, error){"timeout": slow, "broken connection": broken} {
		for _, n := range []int{0, 3, 20, 300} {
			t.Run(fmt.Sprint(name, " of ", n), func(t *testing.T) {
				inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
					const others, polls = 20, 40 // ten minutes
					s.set(reply)
					var all sync.WaitGroup
					var mu sync.Mutex
					answered, failed, longest := 0, map[string]int{}, time.Duration(0)
					poll := func(q Query, after time.Duration, each func(error, time.Duration)) {
						all.Go(func() {
							time.Sleep(after)
							for range polls {
								began := time.Now()
								ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
								_, err := w.Query(ctx, q)
								cancel()
								each(err, time.Since(began))
								time.Sleep(15*time.Second - min(time.Since(began), 15*time.Second))
							}
						})
					}
					for i := range n {
						poll(of("shop", fmt.Sprint("slow", i)), time.Duration(i)*15*time.Second/time.Duration(n), func(error, time.Duration) {})
					}
					for i := range others {
						// Some are of the cluster, and several of one namespace.
						owner := []string{"", "bank", "post", "news"}[i%4]
						poll(of(owner, fmt.Sprint("good", i)), time.Duration(i)*750*time.Millisecond, func(err error, took time.Duration) {
							mu.Lock()
							defer mu.Unlock()
							longest = max(longest, took)
							if err != nil {
								failed[err.Error()]++
								return
							}
							answered++
						})
					}
					all.Wait()
					if diff := cmp.Diff(map[string]int{}, failed); diff != "" || answered != others*polls {
						t.Errorf("others were answered %d times of %d, and failed:\n%s", answered, others*polls, diff)
					}
					if longest > time.Second {
						t.Errorf("others waited up to %s", longest)
					}
				})
			})
		}
	}
}

// A source that has answered nobody else is not taken from a namespace that has not asked
// yet either.
func TestOwnerThatComesLater(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
		s.set(slow)
		for i := range 20 {
			defer w.subscribe(of("shop", fmt.Sprint("slow", i)), func(*Result, error) {})()
		}
		time.Sleep(5 * time.Minute)
		w.mustAsk(of("bank", "good"))
	})
}

// What a source says of one namespace's question is not told to another.
func TestSuspensionTellsNobodyElsesWords(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
		s.set(slow)
		for i := range 9 {
			defer w.subscribe(of(fmt.Sprint("shop", i%3), fmt.Sprint("slow", i)), func(*Result, error) {})()
		}
		time.Sleep(time.Minute)
		var all sync.WaitGroup
		for i := range 5 { // one of them tries the source
			all.Go(func() {
				_, err := w.ask(of("bank", fmt.Sprint("slow_bank", i)))
				if err == nil || strings.Contains(err.Error(), "query timed out: slow") && !strings.Contains(err.Error(), "slow_bank") {
					t.Errorf("got %v", err)
				}
			})
		}
		all.Wait()
	})
}

// A dead source is not hammered by owners each of which has one question.
func TestDeadSourceOfManyOwners(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
		s.set(func(ctx context.Context, _ string, at time.Time) (*Result, error) { return slow(ctx, "slow", at) })
		for i := range 100 {
			defer w.subscribe(of(fmt.Sprint("team-", i), "up"), func(*Result, error) {})()
		}
		time.Sleep(time.Minute)
		before := s.count()
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		// One at a time that tries it, and one of those that have not failed yet.
		if n := s.count() - before; n > 36 {
			t.Errorf("%d evaluations in three minutes", n)
		}
		s.set(nil)
		time.Sleep(maxBackoff + 15*time.Second)
		for i := range 100 {
			w.mustAsk(of(fmt.Sprint("team-", i), "up"))
		}
	})
}

func TestOwnersTakeTurns(t *testing.T) {
	inWorld(t, Limits{Concurrency: 1}, func(t *testing.T, w *world, s *source) {
		s.takes = time.Second
		var all sync.WaitGroup
		for _, q := range []Query{of("a", "a1"), of("a", "a2"), of("a", "a3"), of("b", "b1"), of("b", "b2"), of("c", "c1")} {
			all.Go(func() { w.mustAsk(q) })
			synctest.Wait()
		}
		all.Wait()
		if diff := cmp.Diff([]string{"a1", "a2", "b1", "c1", "a3", "b2"}, s.asked); diff != "" {
			t.Errorf("evaluated in another order:\n%s", diff)
		}
	})
}

func TestFullQueueHasRoomForOthers(t *testing.T) {
	inWorld(t, Limits{Concurrency: 1, MaxQueued: 10}, func(t *testing.T, w *world, s *source) {
		s.takes = time.Second
		var all sync.WaitGroup
		refused := 0
		var mu sync.Mutex
		for i := range 50 {
			all.Go(func() {
				if _, err := w.ask(of("a", fmt.Sprint(i))); reasonOf(err) == ReasonOverloaded {
					mu.Lock()
					defer mu.Unlock()
					refused++
				}
			})
		}
		synctest.Wait()
		w.mustAsk(of("b", "good"))
		all.Wait()
		if refused != 50-6 {
			t.Errorf("%d of 50 were refused", refused)
		}
	})
}

// What one owner holds takes no room from others, followed or not.
func TestSharesOfWhatIsHeld(t *testing.T) {
	inWorld(t, Limits{MaxCachedSamples: 1000, MaxQueries: 40, MaxCachedBytes: 1000}, func(t *testing.T, w *world, s *source) {
		s.set(func(_ context.Context, expression string, at time.Time) (*Result, error) {
			n := 1
			if strings.HasPrefix(expression, "long") {
				n = 300
			}
			return &Result{Time: at, Samples: make([]Sample, n)}, nil
		})
		good := of("bank", "good")
		w.mustAsk(good)
		var mu sync.Mutex
		reasons := map[Reason]int{}
		for i := range 5 {
			defer w.subscribe(of("shop", fmt.Sprint("long", i)), func(_ *Result, err error) {
				mu.Lock()
				defer mu.Unlock()
				reasons[reasonOf(err)]++
			})()
		}
		synctest.Wait()
		mu.Lock()
		if diff := cmp.Diff(map[Reason]int{"": 1, ReasonTooLarge: 4}, reasons); diff != "" {
			t.Error(diff)
		}
		mu.Unlock()
		for i := range 100 {
			_, _ = w.ask(of("shop", fmt.Sprint("many", i)))
			_, _ = w.ask(of("shop", fmt.Sprint("wide", i, strings.Repeat("x", 300))))
		}
		if _, err := w.ask(of("shop", strings.Repeat("x", 1001))); reasonOf(err) != ReasonOverloaded {
			t.Errorf("an expression beyond all bytes: %v", err)
		}
		before := s.count()
		w.mustAsk(good)
		for i := range 10 {
			w.mustAsk(of("post", fmt.Sprint("good", i)))
		}
		if n := s.count() - before; n != 10 {
			t.Errorf("%d evaluations: what others hold was forgotten", n)
		}
		w.Evaluator.mu.Lock()
		defer w.Evaluator.mu.Unlock()
		if own := w.cache.tenants["shop"]; own.queries > 20 || own.bytes > 500 || own.samples > 500 {
			t.Errorf("one owner holds %+v", own.usage)
		}
	})
}

// Requests that wait for a source that hangs are so many at most, and leave places for
// requests of others: beyond that they fail at once.
func TestRequestsThatWaitAreBounded(t *testing.T) {
	inWorld(t, Limits{MaxWaiting: 20}, func(t *testing.T, w *world, s *source) {
		s.takes = 30 * time.Second
		w.put("other", &source{})
		var all sync.WaitGroup
		var mu sync.Mutex
		got := map[Reason]int{}
		for range 400 {
			all.Go(func() {
				began := time.Now()
				_, err := w.ask(of("shop", "hangs"))
				mu.Lock()
				defer mu.Unlock()
				got[reasonOf(err)]++
				if err != nil && time.Since(began) != 0 {
					t.Errorf("refused after %s", time.Since(began))
				}
			})
		}
		synctest.Wait()
		theirs := of("bank", "good")
		theirs.Source = "other"
		w.mustAsk(theirs)
		all.Wait()
		if diff := cmp.Diff(map[Reason]int{"": 10, ReasonOverloaded: 390}, got); diff != "" {
			t.Error(diff)
		}
		w.Evaluator.mu.Lock()
		defer w.Evaluator.mu.Unlock()
		if w.cache.total.waiting != 0 {
			t.Errorf("in the end %d wait", w.cache.total.waiting)
		}
	})
}
