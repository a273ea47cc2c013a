// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/internal/schedule"
)

func FuzzSlots(f *testing.F) {
	f.Add("up", int64(15*time.Second), int64(1_790_000_000_123_456_789))
	f.Add("up", int64(0), int64(0))
	f.Add("", int64(time.Hour), int64(-1))
	f.Add("up", int64(1234567891), int64(-62_135_596_800))
	f.Fuzz(func(t *testing.T, expression string, interval, nanos int64) {
		s := slotsOf(Query{Expression: expression, Interval: time.Duration(interval) % (100 * time.Hour)})
		now := time.Unix(0, nanos)
		slot, began := s.Slot(now)
		if since := now.Sub(began); since < 0 || since >= s.Interval+time.Millisecond {
			t.Errorf("a slot of %s began %s ago", s.Interval, since)
		}
		if began.Nanosecond()%int(time.Millisecond) != 0 {
			t.Errorf("a slot began at %s, amid a millisecond", began)
		}
		if again, same := s.Slot(began); again != slot || !same.Equal(began) {
			t.Error("a slot does not begin in itself")
		}
		if wait := untilNext(s, now); wait <= 0 || wait > s.Interval {
			t.Errorf("the next slot of %s begins in %s", s.Interval, wait)
		}
		if next, _ := s.Slot(now.Add(untilNext(s, now))); next != slot+1 {
			t.Errorf("after slot %d comes %d", slot, next)
		}
	})
}

func TestSlotsAreSpread(t *testing.T) {
	quarters := [4]int{}
	for i := range 1000 {
		s := slotsOf(testQuery(string(rune(i))))
		quarters[s.Phase*4/s.Interval]++
	}
	for i, n := range quarters {
		if n < 200 || n > 300 {
			t.Errorf("%d of 1000 queries start in quarter %d", n, i)
		}
	}
}

// scrapedSource is a Source with series that a scrape renews.
type scrapedSource struct {
	// times returns the time of the newest sample at an instant, and whether it is known.
	times func(at time.Time) (newest time.Time, known bool)
	// values are those of the label q.
	values []string

	mu    sync.Mutex
	asked []scrapedQuery
}

// scrapedQuery is an evaluation, and the age of its sample.
type scrapedQuery struct {
	at          time.Time
	age         time.Duration
	sampleTimes SampleTimes
	expression  string
}

func (s *scrapedSource) Evaluate(_ context.Context, q Query, at time.Time) (*Result, error) {
	newest, known := s.times(at)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, scrapedQuery{at, at.Sub(newest), q.SampleTimes, q.Expression})
	if !known || q.SampleTimes == SampleTimesNotNeeded {
		return singleResult(at, 1), nil
	}
	result := &Result{Time: at, SampleTimes: true}
	for _, value := range append(s.values, "a", "b") {
		result.Samples = append(result.Samples, Sample{Labels: map[string]string{"q": value}, Time: newest, Age: at.Sub(newest)})
	}
	result.Samples = append(result.Samples, Sample{Labels: map[string]string{"q": "ended"}, Time: at, Age: EndedAge})
	return result, nil
}

// since returns the evaluations as of an instant or later.
func (s *scrapedSource) since(start time.Time) []scrapedQuery {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, q := range s.asked {
		if !q.at.Before(start) {
			return s.asked[i:]
		}
	}
	return nil
}

// scrapedEvery returns the newest of samples each interval, which are visible after a delay.
func scrapedEvery(interval, delay time.Duration) func(time.Time) (time.Time, bool) {
	const phase = 1234 * time.Millisecond
	return func(at time.Time) (time.Time, bool) {
		return at.Add(-delay - phase).Truncate(interval).Add(phase), true
	}
}

func TestWatchedQueriesFollowTheSource(t *testing.T) {
	const ms = time.Millisecond
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // the bubble's
	hashed := slotsOf(testQuery("a"))
	tests := map[string]struct {
		times func(time.Time) (time.Time, bool)
		// age is the greatest at the end; zero for evaluations at the slots of the hash.
		age time.Duration
	}{
		"each interval":           {scrapedEvery(15*time.Second, 100*ms), 1250 * ms},
		"every other interval":    {scrapedEvery(30*time.Second, 100*ms), 16250 * ms},
		"each minute":             {scrapedEvery(time.Minute, 100*ms), 46250 * ms},
		"three times an interval": {scrapedEvery(5*time.Second, 100*ms), 1250 * ms},
		"visible after 3s":        {scrapedEvery(15*time.Second, 3*time.Second), 0},
		"visible after 30s":       {scrapedEvery(15*time.Second, 30*time.Second), 0},
		"another interval":        {scrapedEvery(20*time.Second, 100*ms), 0},
		"no interval": {func(at time.Time) (time.Time, bool) {
			return at.Add(-time.Duration(at.UnixMilli()*7919%10000) * ms), true
		}, 0},
		"the source does not know": {func(at time.Time) (time.Time, bool) { return at, false }, 0},
		"no more samples":          {func(time.Time) (time.Time, bool) { return start, true }, 0},
		"late for a while": {func(at time.Time) (time.Time, bool) {
			if since := at.Sub(start); since > 5*time.Minute && since < 8*time.Minute {
				return scrapedEvery(15*time.Second, 3*time.Second)(at)
			}
			return scrapedEvery(15*time.Second, 100*ms)(at)
		}, 1250 * ms},
		"it restarts": {func(at time.Time) (time.Time, bool) {
			if at.Sub(start) < 10*time.Minute {
				return scrapedEvery(15*time.Second, 100*ms)(at)
			}
			newest, _ := scrapedEvery(15*time.Second, 100*ms)(at.Add(5 * time.Second))
			return newest.Add(-5 * time.Second), true
		}, 1250 * ms},
		"it drifts": {func(at time.Time) (time.Time, bool) {
			drift := at.Sub(start) / 300 // 50 ms an interval
			newest, _ := scrapedEvery(15*time.Second, 100*ms)(at.Add(-drift))
			return newest.Add(drift), true
		}, 1750 * ms},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, f *fixture, _ *fakeSource) {
				s := &scrapedSource{times: test.times}
				f.setSource("p", s)
				stop := f.subscribe(testQuery("a"), func(*Result, error) {})
				time.Sleep(30 * time.Minute)
				synctest.Wait()
				stop()
				for _, q := range s.since(start.Add(20 * time.Minute)) {
					if t.Failed() {
						break
					}
					switch {
					case test.age == 0 && !q.at.Equal(hashed.Start(q.at)):
						t.Errorf("it is evaluated as of %s, which is no slot", q.at)
					case test.age > 0 && q.age > test.age:
						t.Errorf("as of %s the sample was %s old", q.at, q.age)
					}
				}
				all := s.since(start)
				for i := range len(all) - 1 {
					// A phase that moves by less than a second moves a slot.
					if gap := all[i+1].at.Sub(all[i].at); gap > 16*time.Second {
						t.Errorf("no evaluation for %s from %s on", gap, all[i].at)
					}
				}
				// A few more than slots, one for each time that the phase changes by much.
				if n := len(s.since(start)); n < 120 || n > 126 {
					t.Errorf("%d evaluations in 120 slots", n)
				}
			})
		})
	}
}

// Replicas that see the same samples evaluate as of the same instants, whenever they began.
func TestReplicasFollowTheSourceAlike(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, _ *fakeSource) {
		s := &scrapedSource{times: scrapedEvery(15*time.Second, 100*time.Millisecond)}
		f.setSource("p", s)
		other := NewEvaluator(f.clock, f.random, f.Evaluator.sources, 200)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { other.Run(ctx) })
		defer f.subscribe(testQuery("a"), func(*Result, error) {})()
		time.Sleep(100 * time.Second)
		defer other.Subscribe(testQuery("a"), time.Time{}, func(*Result, error) {})()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		seen := map[time.Time]int{}
		for _, q := range s.since(time.Now().Add(-2 * time.Minute)) {
			seen[q.at]++
		}
		for at, n := range seen {
			if n != 2 {
				t.Errorf("%d replicas evaluated as of %s", n, at)
			}
		}
		if len(seen) != 8 {
			t.Errorf("evaluations as of %d instants in 2 minutes", len(seen))
		}
		cancel()
		running.Wait()
	})
}

func TestSampleTimesAreAskedForWhileWatched(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, _ *fakeSource) {
		s := &scrapedSource{times: scrapedEvery(15*time.Second, 0)}
		f.setSource("p", s)
		required := testQuery("a")
		required.SampleTimes = SampleTimesRequired
		poll := func() {
			f.mustQuery(testQuery("a"))
			f.mustQuery(required)
		}
		poll()
		stop := f.subscribe(testQuery("a"), func(*Result, error) {})
		time.Sleep(15 * time.Second)
		synctest.Wait()
		stop()
		time.Sleep(15 * time.Second)
		poll()
		want := []SampleTimes{SampleTimesNotNeeded, SampleTimesRequired, SampleTimesIfKnown, SampleTimesNotNeeded, SampleTimesRequired}
		var got []SampleTimes
		for _, q := range s.asked {
			got = append(got, q.sampleTimes)
		}
		if len(got) != len(want) {
			t.Fatalf("asked %v, want %v", got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("asked %v, want %v", got, want)
			}
		}
	})
}

// Queries of a Batch stay together when their slots follow the source.
func TestBatchesFollowTheSource(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, _ *fakeSource) {
		s := &scrapedSource{times: scrapedEvery(15*time.Second, 100*time.Millisecond)}
		f.setSource("p", s)
		for _, value := range []string{"a", "b"} {
			defer f.subscribe(batchQuery(value), func(r *Result, err error) {
				if err != nil {
					t.Error(err)
				}
			})()
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		last := s.since(time.Now().Add(-2 * time.Minute))
		if len(last) != 8 {
			t.Errorf("%d evaluations in 8 slots", len(last))
		}
		for _, q := range last {
			if q.age > 1250*time.Millisecond {
				t.Errorf("as of %s the sample was %s old", q.at, q.age)
			}
		}
		before := len(s.since(time.Time{}))
		defer f.subscribe(batchQuery("c"), func(*Result, error) {})()
		time.Sleep(time.Minute)
		synctest.Wait()
		// The new one is evaluated alone once, and with the others from then on.
		if n := len(s.since(time.Time{})) - before; n != 5 {
			t.Errorf("%d evaluations in a minute with a new query", n)
		}
	})
}

// Those of a batch that were not evaluated with the one whose evaluation changed the slots have no gap.
func TestAllOfABatchFollowTheSource(t *testing.T) {
	for phase := time.Duration(0); phase < 15*time.Second; phase += 1500 * time.Millisecond {
		withFixture(t, func(t *testing.T, f *fixture, _ *fakeSource) {
			s := &scrapedSource{times: func(at time.Time) (time.Time, bool) {
				newest, _ := scrapedEvery(15*time.Second, 100*time.Millisecond)(at.Add(-phase))
				return newest.Add(phase), true
			}}
			for i := range maxBatch + 50 {
				s.values = append(s.values, fmt.Sprint("v", i))
			}
			f.setSource("p", s)
			last, longest := map[string]time.Time{}, time.Duration(0)
			var mu sync.Mutex
			for _, value := range s.values {
				defer f.subscribe(batchQuery(value), func(*Result, error) {
					mu.Lock()
					defer mu.Unlock()
					if before, known := last[value]; known {
						longest = max(longest, time.Since(before))
					}
					last[value] = time.Now()
				})()
			}
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if longest > 16*time.Second {
				t.Errorf("with a phase of %s there was no result for %s", phase, longest)
			}
		})
	}
}

// Queries that need the times of samples are not evaluated with others, which do not.
func TestBatchesDifferInSampleTimes(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, _ *fakeSource) {
		s := &scrapedSource{times: scrapedEvery(15*time.Second, 0), values: []string{"a", "b"}}
		f.setSource("p", s)
		plain, required := batchQuery("a"), batchQuery("b")
		required.SampleTimes = SampleTimesRequired
		for range 3 {
			for _, q := range []Query{plain, required} {
				if _, err := f.Query(t.Context(), q); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(15 * time.Second)
		}
		for _, q := range s.asked {
			if q.expression == "one(b)" != (q.sampleTimes == SampleTimesRequired) || q.expression == "all(a|b)" {
				t.Errorf("asked %s with %d", q.expression, q.sampleTimes)
			}
		}
	})
}

func TestFollow(t *testing.T) {
	const ms = time.Millisecond
	epoch := time.UnixMilli(1_700_000_010_000) // a multiple of 15 s
	// step is an evaluation at the start of a slot, or late after it, and the age of its newest sample.
	type step struct{ late, age, phase time.Duration }
	repeat := func(n int, s step) []step {
		var all []step
		for range n {
			all = append(all, s)
		}
		return all
	}
	const hashed = 5 * time.Second
	tests := map[string][]step{
		"the second renewal decides": {{0, 3000 * ms, hashed}, {0, 3000 * ms, hashed}, {0, 3000 * ms, 3000 * ms}, {0, 1000 * ms, 3000 * ms}},
		"rounded up":                 {{0, 3100 * ms, hashed}, {0, 3100 * ms, hashed}, {0, 3100 * ms, 3000 * ms}},
		"rounded up to the next":     {{0, 2900 * ms, hashed}, {0, 2900 * ms, hashed}, {0, 2900 * ms, 3250 * ms}},
		"not at the start of a slot": repeat(5, step{100 * ms, 3000 * ms, hashed}),
		"a jitter":                   {{0, 3000 * ms, hashed}, {0, 3200 * ms, hashed}, {0, 3000 * ms, 3000 * ms}, {0, 1200 * ms, 3000 * ms}, {0, 1000 * ms, 3000 * ms}},
		"more than a jitter":         {{0, 3000 * ms, hashed}, {0, 3300 * ms, hashed}, {0, 3000 * ms, hashed}, {0, 3300 * ms, hashed}},
		"a jitter at first":          {{0, 3000 * ms, hashed}, {0, 4000 * ms, hashed}, {0, 4000 * ms, hashed}, {0, 4000 * ms, 2000 * ms}},
		"late, in time, and late": {{0, 3000 * ms, hashed}, {0, 3000 * ms, hashed}, {0, 3000 * ms, 3000 * ms}, {0, 1000 * ms, 3000 * ms},
			{0, 16000 * ms, 3000 * ms}, {0, 16000 * ms, 3000 * ms}, {0, 1000 * ms, 3000 * ms}, {0, 16000 * ms, 3000 * ms}, {0, 16000 * ms, 3000 * ms}},
		"late once": {{0, 3000 * ms, hashed}, {0, 3000 * ms, hashed}, {0, 3000 * ms, 3000 * ms}, {0, 1000 * ms, 3000 * ms},
			{0, 16000 * ms, 3000 * ms}},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			s := &slots{Schedule: schedule.Schedule{Interval: 15 * time.Second, Phase: hashed}, hashed: hashed, needed: minRenewals}
			now := epoch
			for i, step := range steps {
				now = s.Next(now)
				before := s.Phase
				changed := s.follow(now.Add(step.late), now.Add(step.late-step.age))
				if s.Phase != step.phase || changed != (before != s.Phase) {
					t.Fatalf("step %d: the phase is %s, want %s; changed: %t", i, s.Phase, step.phase, changed)
				}
			}
		})
	}
	t.Run("a short interval", func(t *testing.T) {
		s := newSlots(Query{Interval: time.Second})
		for range 5 {
			epoch = s.Next(epoch)
			s.follow(epoch, epoch.Add(-100*ms).Truncate(time.Second).Add(100*ms))
		}
		if want := 500 * ms; s.Phase != want {
			t.Errorf("the phase is %s, want %s", s.Phase, want)
		}
	})
	t.Run("lost, and longer until it follows again", func(t *testing.T) {
		s := &slots{Schedule: schedule.Schedule{Interval: 15 * time.Second, Phase: hashed}, hashed: hashed, needed: minRenewals}
		now, newest := epoch, epoch.Add(3*time.Second)
		// until evaluates until the slots follow or not, and returns how many evaluations that took.
		until := func(following bool, visible time.Duration) (n int) {
			for n = 0; s.following != following && n < 1000; n++ {
				now = s.Next(now)
				newest = now.Add(-visible - 3*time.Second).Truncate(15 * time.Second).Add(3 * time.Second)
				s.follow(now, newest)
			}
			return n
		}
		var taken []int
		for range 8 {
			taken = append(taken, until(true, 0), until(false, 2*time.Second))
		}
		want := []int{3, 3, 4, 3, 8, 3, 16, 3, 32, 3, 64, 3, 64, 3, 64, 3}
		if diff := cmp.Diff(want, taken); diff != "" {
			t.Errorf("evaluations until it follows, and until it does not (-want +got): %s", diff)
		}
	})
}

// When the slots of a batch change, what its other entries have is of the slot that it would be of now.
func TestSlotsAreRenumbered(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, _ *fakeSource) {
		one, other := batchQuery("a"), batchQuery("b")
		defer f.subscribe(other, func(*Result, error) {})()
		f.mustQuery(one)
		time.Sleep(15 * time.Second)
		synctest.Wait()
		f.Evaluator.mu.Lock()
		defer f.Evaluator.mu.Unlock()
		e, o := f.cache.entries[one], f.cache.entries[other]
		_, began := o.slots.Slot(time.Now())
		o.failedSlot = o.outcome.slot
		// The last slot begins three seconds later from now on.
		sample := began.Add(2*time.Second - 15*time.Second).Truncate(phaseTolerance)
		o.slots.newest, o.slots.renewals = sample.Add(-15*time.Second), minRenewals-1
		f.follow(e, began, sample, time.Now())
		before := []int64{o.outcome.slot, o.failedSlot}
		now, _ := o.slots.Slot(began.Add(maxEarly))
		if diff := cmp.Diff([]int64{now, now}, before); diff != "" || !o.slots.following {
			t.Errorf("slots of the outcome and the failure: %s", diff)
		}
		if got, want := f.due.NextDue(), o.slots.Next(time.Now()); !got.Equal(want) {
			t.Errorf("it is evaluated at %s, want %s", got, want)
		}
	})
}
