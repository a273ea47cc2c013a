// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

// recorder records what a subscriber receives.
type recorder struct {
	mu      sync.Mutex
	results []*Result
	errs    []error
}

func (h *recorder) receive(a *Result, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.results, h.errs = append(h.results, a), append(h.errs, err)
}

func (h *recorder) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.results)
}

// times returns those of the results.
func (h *recorder) times() []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	var times []time.Time
	for _, a := range h.results {
		times = append(times, a.Time)
	}
	return times
}

// A query that replaces another one is first evaluated as of now, unless its cached result is as
// new as the other's, and then at the start of its slots.
func TestSubscribeSince(t *testing.T) {
	const ms = time.Millisecond
	tests := map[string]struct {
		// at is the instant of the other query's result, since the start of the slot in whose
		// fifth second this one is subscribed to; nil for none.
		at *time.Duration
		// known says that it has a subscriber since the start of the slot.
		known bool
		want  []time.Duration // the instants of the results
	}{
		"nothing is at hand":            {nil, false, []time.Duration{0, 15000 * ms}},
		"nothing is known of it":        {ptr.To(1000 * ms), false, []time.Duration{4100 * ms, 15000 * ms}},
		"nothing is at hand, known":     {nil, true, []time.Duration{0, 15000 * ms}},
		"what is known of it is older":  {ptr.To(ms), true, []time.Duration{4100 * ms, 15000 * ms}},
		"what is known of it is as new": {ptr.To(0 * ms), true, []time.Duration{0, 15000 * ms}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, f *fixture, _ *fakeSource) {
				q := testQuery("a")
				waitForSlot(q)
				_, began := slotsOf(q).Slot(time.Now())
				if test.known {
					defer f.subscribe(q, func(*Result, error) {})()
				}
				time.Sleep(4 * time.Second)
				var since time.Time
				if test.at != nil {
					since = began.Add(*test.at)
				}
				var h recorder
				defer f.Evaluator.Subscribe(q, since, h.receive)()
				time.Sleep(15 * time.Second)
				synctest.Wait()
				var got []time.Duration
				for _, at := range h.times() {
					got = append(got, at.Sub(began))
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// A failure is shared, and the result after it is as of its moment.
func TestSubscribeSinceWhileSourceFails(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		q := testQuery("a")
		waitForSlot(q)
		s.setEvaluate(func(context.Context, string, time.Time) (*Result, error) {
			return nil, &Failure{Source: "p", Reason: ReasonRejected, Message: "no"}
		})
		defer f.subscribe(q, func(*Result, error) {})()
		time.Sleep(4 * time.Second)
		before := s.count()
		var h recorder
		defer f.Evaluator.Subscribe(q, time.Now(), h.receive)()
		synctest.Wait()
		if n := s.count() - before; n != 0 || h.count() != 1 || h.errs[0] == nil {
			t.Errorf("%d evaluations, it received %v", n, h.errs)
		}
	})
}

// Two replicas evaluate a query with subscribers as of the same instants, whenever each of
// them got the subscription.
func TestSubscriptionsAreEvaluatedAtSlots(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		ctx, cancel := context.WithCancel(t.Context())
		other := NewEvaluator(f.clock, f.random, f.Evaluator.sources, 200)
		var running sync.WaitGroup
		running.Go(func() { other.Run(ctx) })
		q := testQuery("a")
		waitForSlot(q)
		var one, two recorder
		stop := f.subscribe(q, one.receive)
		time.Sleep(4 * time.Second)
		defer other.Subscribe(q, time.Time{}, two.receive)()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		stop()
		stop()
		_, began := slotsOf(q).Slot(one.times()[0])
		want := []time.Time{began, began.Add(15 * time.Second), began.Add(30 * time.Second)}
		if diff := cmp.Diff([][]time.Time{want, want}, [][]time.Time{one.times(), two.times()}); diff != "" {
			t.Error(diff)
		}
		cancel()
		running.Wait()
		time.Sleep(time.Minute)
		if n := s.count(); n != 6 {
			t.Errorf("%d evaluations on both", n)
		}
	})
}

func TestSubscribersAndCallersShare(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		q := testQuery("a")
		waitForSlot(q)
		f.mustQuery(q)
		var all []*recorder
		for range 1000 {
			h := &recorder{}
			all = append(all, h)
			defer f.subscribe(q, h.receive)()
			if h.count() != 1 {
				t.Fatal("the cached result is not received first")
			}
		}
		time.Sleep(15 * time.Second)
		f.mustQuery(q)
		synctest.Wait()
		if n := s.count(); n != 2 {
			t.Errorf("%d evaluations", n)
		}
		for _, h := range all {
			if h.count() != 2 {
				t.Fatalf("a subscriber received %d results", h.count())
			}
		}
	})
}

func TestEvaluationAfterUnsubscribe(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		ended := make(chan error, 1)
		s.setEvaluate(func(ctx context.Context, _ string, _ time.Time) (*Result, error) {
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		})
		var h recorder
		stop := f.subscribe(testQuery("a"), h.receive)
		synctest.Wait()
		stop()
		<-ended
		synctest.Wait()
		if h.count() != 0 {
			t.Errorf("received %v after the end", h.errs)
		}
	})
}

func TestSubscriberStopsItself(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, _ *fakeSource) {
		stop := make(chan func(), 1)
		n := 0
		stop <- f.subscribe(testQuery("a"), func(*Result, error) {
			if n++; n == 2 {
				(<-stop)()
			}
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if n != 2 {
			t.Errorf("received %d times", n)
		}
	})
}

func TestSlowSourceSkipsSlots(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.latency = 20 * time.Second
		q := testQuery("a")
		waitForSlot(q)
		var h recorder
		defer f.subscribe(q, h.receive)()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if s.maxRunning != 1 || s.count() > 5 {
			t.Errorf("%d evaluations, %d at a time", s.count(), s.maxRunning)
		}
	})
}

func TestSubscribedSourceIsReplaced(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, _ *fakeSource) {
		q := Query{Source: "p", Expression: "a", Interval: time.Hour}
		var h recorder
		defer f.subscribe(q, h.receive)()
		synctest.Wait()
		f.setSource("p", nil)
		f.SourcesChanged()
		synctest.Wait()
		f.setSource("p", &fakeSource{evaluate: func(_ context.Context, _ string, at time.Time) (*Result, error) { return singleResult(at, 42), nil }})
		f.SourcesChanged()
		synctest.Wait()
		if h.count() != 3 || reasonOf(h.errs[1]) != ReasonUnknownSource || h.results[2].Samples[0].Value != 42 {
			t.Errorf("received %v and %v", h.results, h.errs)
		}
	})
}

// Subscribers receive no result of a removed source, even if its evaluation ends later.
func TestSubscribedSourceIsRemoved(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.latency = 5 * time.Second
		q := Query{Source: "p", Expression: "a", Interval: time.Hour}
		var h recorder
		defer f.subscribe(q, h.receive)()
		time.Sleep(time.Second)
		f.setSource("p", nil)
		f.SourcesChanged()
		time.Sleep(30 * time.Second)
		if h.count() != 1 || reasonOf(h.errs[0]) != ReasonUnknownSource {
			t.Errorf("received %v and %v", h.results, h.errs)
		}
		if total := f.cache.total; total.bytes != len(q.Expression) {
			t.Errorf("%+v is cached", total)
		}
		f.setSource("p", s)
		f.SourcesChanged()
		time.Sleep(10 * time.Second)
		if h.count() != 2 || h.errs[1] != nil {
			t.Errorf("when it is back: received %v and %v", h.results, h.errs)
		}
	})
}

// After the clock jumps, a query with subscribers is evaluated within an interval, and a
// request at once.
func TestClockJumps(t *testing.T) {
	for name, jump := range map[string]time.Duration{"ahead": 10 * time.Hour, "back": -10 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			c := clocktesting.NewFakeClock(time.Date(2026, 8, 30, 12, 0, 0, 0, time.UTC))
			s := &fakeSource{}
			d := NewEvaluator(c, func() float64 { return 0 }, func(string) (Source, bool) { return s, true }, 200)
			q, told := testQuery("a"), make(chan time.Time, 10)
			defer d.Subscribe(q, time.Time{}, func(a *Result, _ error) { told <- a.Time })()
			<-told
			c.SetTime(c.Now().Add(jump))
			if _, err := d.Query(t.Context(), q); err != nil {
				t.Fatal(err)
			}
			_, want := slotsOf(q).Slot(c.Now())
			if got := <-told; !got.Equal(want) {
				t.Errorf("evaluated as of %s, not of %s", got, want)
			}
		})
	}
}

func TestEvaluationsAreInOrder(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, _ *fakeSource) {
		var mu sync.Mutex
		var times []time.Time
		var stops []func()
		for i := range 50 {
			stops = append(stops, f.subscribe(Query{Source: "p", Expression: string(rune('a' + i)), Interval: time.Duration(i%7+1) * time.Second}, func(a *Result, _ error) {
				mu.Lock()
				defer mu.Unlock()
				times = append(times, a.Time)
			}))
		}
		synctest.Wait()
		mu.Lock()
		times = nil
		mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		for i, stop := range stops {
			if i%2 == 0 {
				stop()
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if !slices.IsSortedFunc(times, time.Time.Compare) {
			t.Error("queries were evaluated out of order")
		}
		for _, stop := range stops {
			stop()
		}
		f.Evaluator.mu.Lock()
		defer f.Evaluator.mu.Unlock()
		if f.due.Len() != 0 || f.cache.tenants[""].lru.Len() != 50 {
			t.Errorf("%d due and %d in the LRU list", f.due.Len(), f.cache.tenants[""].lru.Len())
		}
	})
}
