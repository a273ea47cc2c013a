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

// heard keeps what a follower is told.
type heard struct {
	mu      sync.Mutex
	answers []*Result
	errs    []error
}

func (h *heard) receive(a *Result, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers, h.errs = append(h.answers, a), append(h.errs, err)
}

func (h *heard) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.answers)
}

// times are those of the answers.
func (h *heard) times() []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	var times []time.Time
	for _, a := range h.answers {
		times = append(times, a.Time)
	}
	return times
}

// A question that takes the place of another is as of now at first, unless what is known of it is as
// new as the other's answer, and of its slots from then on.
func TestFollowedSince(t *testing.T) {
	const ms = time.Millisecond
	tests := map[string]struct {
		// at is the instant of the other question's answer, from the beginning of the slot in whose
		// fifth second this one is followed; nil for none.
		at *time.Duration
		// known says that it is followed already, since the beginning of the slot.
		known bool
		want  []time.Duration // the instants of the answers
	}{
		"nothing is at hand":            {nil, false, []time.Duration{0, 15000 * ms}},
		"nothing is known of it":        {ptr.To(1000 * ms), false, []time.Duration{4100 * ms, 15000 * ms}},
		"nothing is at hand, known":     {nil, true, []time.Duration{0, 15000 * ms}},
		"what is known of it is older":  {ptr.To(ms), true, []time.Duration{4100 * ms, 15000 * ms}},
		"what is known of it is as new": {ptr.To(0 * ms), true, []time.Duration{0, 15000 * ms}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Limits{}, func(t *testing.T, w *world, _ *source) {
				q := asked("a")
				toSlot(q)
				_, began := slotsOf(q).at(time.Now())
				if test.known {
					defer w.subscribe(q, func(*Result, error) {})()
				}
				time.Sleep(4 * time.Second)
				var since time.Time
				if test.at != nil {
					since = began.Add(*test.at)
				}
				var h heard
				defer w.Evaluator.Subscribe(q, since, h.receive)()
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

// A failure is shared as ever, and what comes after it is as of its moment.
func TestFollowedSinceWhileTheSourceFails(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
		q := asked("a")
		toSlot(q)
		s.set(func(context.Context, string, time.Time) (*Result, error) {
			return nil, &Failure{Source: "p", Reason: ReasonRejected, Message: "no"}
		})
		defer w.subscribe(q, func(*Result, error) {})()
		time.Sleep(4 * time.Second)
		before := s.count()
		var h heard
		defer w.Evaluator.Subscribe(q, time.Now(), h.receive)()
		synctest.Wait()
		if n := s.count() - before; n != 0 || h.count() != 1 || h.errs[0] == nil {
			t.Errorf("%d evaluations, it heard %v", n, h.errs)
		}
	})
}

// Two replicas evaluate a followed question as of the same instants, at whatever
// moment it is followed on each.
func TestFollowedAtSlots(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
		ctx, cancel := context.WithCancel(t.Context())
		other := NewEvaluator(w.clock, w.random, w.Evaluator.sources, Limits{})
		var running sync.WaitGroup
		running.Go(func() { other.Run(ctx) })
		q := asked("a")
		toSlot(q)
		var one, two heard
		stop := w.subscribe(q, one.receive)
		time.Sleep(4 * time.Second)
		defer other.Subscribe(q, time.Time{}, two.receive)()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		stop()
		stop()
		_, began := slotsOf(q).at(one.times()[0])
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

func TestFollowersShareWithWhoAsks(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
		q := asked("a")
		toSlot(q)
		w.mustAsk(q)
		var all []*heard
		for range 1000 {
			h := &heard{}
			all = append(all, h)
			defer w.subscribe(q, h.receive)()
			if h.count() != 1 {
				t.Fatal("what is known is not told first")
			}
		}
		time.Sleep(15 * time.Second)
		w.mustAsk(q)
		synctest.Wait()
		if n := s.count(); n != 2 {
			t.Errorf("%d evaluations", n)
		}
		for _, h := range all {
			if h.count() != 2 {
				t.Fatalf("a follower heard %d answers", h.count())
			}
		}
	})
}

func TestUnfollowEndsTheEvaluation(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
		ended := make(chan error, 1)
		s.set(func(ctx context.Context, _ string, _ time.Time) (*Result, error) {
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		})
		var h heard
		stop := w.subscribe(asked("a"), h.receive)
		synctest.Wait()
		stop()
		<-ended
		synctest.Wait()
		if h.count() != 0 {
			t.Errorf("heard %v after the end", h.errs)
		}
	})
}

func TestFollowerMayStopItself(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, _ *source) {
		stop := make(chan func(), 1)
		n := 0
		stop <- w.subscribe(asked("a"), func(*Result, error) {
			if n++; n == 2 {
				(<-stop)()
			}
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if n != 2 {
			t.Errorf("heard %d times", n)
		}
	})
}

func TestSlowSourceSkipsSlots(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
		s.takes = 20 * time.Second
		q := asked("a")
		toSlot(q)
		var h heard
		defer w.subscribe(q, h.receive)()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if s.most != 1 || s.count() > 5 {
			t.Errorf("%d evaluations, %d at a time", s.count(), s.most)
		}
	})
}

func TestFollowedSourceIsReplaced(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, _ *source) {
		q := Query{Source: "p", Expression: "a", Interval: time.Hour}
		var h heard
		defer w.subscribe(q, h.receive)()
		synctest.Wait()
		w.put("p", nil)
		w.SourcesChanged()
		synctest.Wait()
		w.put("p", &source{reply: func(_ context.Context, _ string, at time.Time) (*Result, error) { return number(at, 42), nil }})
		w.SourcesChanged()
		synctest.Wait()
		if h.count() != 3 || reasonOf(h.errs[1]) != ReasonUnknownSource || h.answers[2].Samples[0].Value != 42 {
			t.Errorf("heard %v and %v", h.answers, h.errs)
		}
	})
}

// Who follows a question hears nothing of a source that was taken away, even if it answers then.
func TestFollowedSourceIsTakenAwayWhileAsked(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
		s.takes = 5 * time.Second
		q := Query{Source: "p", Expression: "a", Interval: time.Hour}
		var h heard
		defer w.subscribe(q, h.receive)()
		time.Sleep(time.Second)
		w.put("p", nil)
		w.SourcesChanged()
		time.Sleep(30 * time.Second)
		if h.count() != 1 || reasonOf(h.errs[0]) != ReasonUnknownSource {
			t.Errorf("heard %v and %v", h.answers, h.errs)
		}
		if total := w.cache.total; total.samples != 0 {
			t.Errorf("%+v is held", total)
		}
		w.put("p", s)
		w.SourcesChanged()
		time.Sleep(10 * time.Second)
		if h.count() != 2 || h.errs[1] != nil {
			t.Errorf("when it is back: heard %v and %v", h.answers, h.errs)
		}
	})
}

// With a clock that jumps, a followed question is evaluated within an interval, and
// one that is asked at once.
func TestClockJumps(t *testing.T) {
	for name, jump := range map[string]time.Duration{"ahead": 10 * time.Hour, "back": -10 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			c := clocktesting.NewFakeClock(time.Date(2026, 8, 30, 12, 0, 0, 0, time.UTC))
			s := &source{}
			d := NewEvaluator(c, func() float64 { return 0 }, func(string) (Source, bool) { return s, true }, Limits{})
			q, told := asked("a"), make(chan time.Time, 10)
			defer d.Subscribe(q, time.Time{}, func(a *Result, _ error) { told <- a.Time })()
			<-told
			c.SetTime(c.Now().Add(jump))
			if _, err := d.Query(t.Context(), q); err != nil {
				t.Fatal(err)
			}
			_, want := slotsOf(q).at(c.Now())
			if got := <-told; !got.Equal(want) {
				t.Errorf("evaluated as of %s, not of %s", got, want)
			}
		})
	}
}

func TestAgendaIsInOrder(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, _ *source) {
		var mu sync.Mutex
		var times []time.Time
		var stops []func()
		for i := range 50 {
			stops = append(stops, w.subscribe(Query{Source: "p", Expression: string(rune('a' + i)), Interval: time.Duration(i%7+1) * time.Second}, func(a *Result, _ error) {
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
			t.Error("questions were evaluated out of order")
		}
		for _, stop := range stops {
			stop()
		}
		w.Evaluator.mu.Lock()
		defer w.Evaluator.mu.Unlock()
		if w.due.Len() != 0 || w.cache.tenants[""].lru.Len() != 50 {
			t.Errorf("%d in the agenda and %d among the recent", w.due.Len(), w.cache.tenants[""].lru.Len())
		}
	})
}
