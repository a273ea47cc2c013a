// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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

	mu    sync.Mutex
	asked []scrapedQuery
}

// scrapedQuery is an evaluation, and the age of its sample.
type scrapedQuery struct {
	at          time.Time
	age         time.Duration
	sampleTimes SampleTimes
}

func (s *scrapedSource) Evaluate(_ context.Context, q Query, at time.Time) (*Result, error) {
	newest, known := s.times(at)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, scrapedQuery{at, at.Sub(newest), q.SampleTimes})
	if !known || q.SampleTimes == SampleTimesNotNeeded {
		return singleResult(at, 1), nil
	}
	return &Result{Time: at, SampleTimes: true, Samples: []Sample{
		{Labels: map[string]string{"q": "a"}, Time: newest, Age: at.Sub(newest)}, {Labels: map[string]string{"q": "b"}, Time: newest, Age: at.Sub(newest)},
	}}, nil
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
		"each interval":           {scrapedEvery(15*time.Second, 100*ms), 750 * ms},
		"every other interval":    {scrapedEvery(30*time.Second, 100*ms), 15750 * ms},
		"each minute":             {scrapedEvery(time.Minute, 100*ms), 45750 * ms},
		"three times an interval": {scrapedEvery(5*time.Second, 100*ms), 750 * ms},
		"visible after 3s":        {scrapedEvery(15*time.Second, 3*time.Second), 4250 * ms},
		"visible after 10s":       {scrapedEvery(15*time.Second, 10*time.Second), 13500 * ms},
		"another interval":        {scrapedEvery(20*time.Second, 100*ms), 0},
		"no interval": {func(at time.Time) (time.Time, bool) {
			return at.Add(-time.Duration(at.UnixMilli()*7919%10000) * ms), true
		}, 0},
		"the source does not know": {func(at time.Time) (time.Time, bool) { return at, false }, 0},
		"no more samples":          {func(time.Time) (time.Time, bool) { return start, true }, 0},
		"it restarts": {func(at time.Time) (time.Time, bool) {
			newest, _ := scrapedEvery(15*time.Second, 100*ms)(at)
			if at.Sub(start) > 10*time.Minute {
				return newest.Add(-5 * time.Second), true // which is visible after 5.1s
			}
			return newest, true
		}, 8250 * ms},
		"it drifts": {func(at time.Time) (time.Time, bool) {
			drift := at.Sub(start) / 300 // 50 ms an interval
			newest, _ := scrapedEvery(15*time.Second, 100*ms)(at.Add(-drift))
			return newest.Add(drift), true
		}, 1400 * ms},
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
				// At most 2 more than slots, one for each time that the phase changes at the start.
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
			if q.age > time.Second {
				t.Errorf("as of %s the sample was %s old", q.at, q.age)
			}
		}
	})
}
