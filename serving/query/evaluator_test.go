// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
)

func TestQuerySharesSlot(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		q := testQuery("a")
		waitForSlot(q)
		var got []float64
		for range 4 {
			got = append(got, f.mustQuery(q))
			time.Sleep(5 * time.Second)
		}
		if diff := cmp.Diff([]float64{1, 1, 1, 2}, got); diff != "" {
			t.Error(diff)
		}
		if !slices.Equal(s.expressions, []string{"a", "a"}) {
			t.Errorf("the source evaluated %q", s.expressions)
		}
	})
}

func TestQuerySharesEvaluation(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.limits.maxWaiting = 2000
		s.latency = time.Second
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				if v := f.mustQuery(testQuery("a")); v != 1 {
					t.Errorf("got %v", v)
				}
			})
		}
		all.Wait()
		if n := s.count(); n != 1 {
			t.Errorf("%d evaluations", n)
		}
	})
}

// A thousand autoscalers that poll a hundred metrics each interval cost a hundred
// evaluations an interval, and watches of them cost nothing more.
func TestThousandAutoscalersOnHundredMetrics(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.limits.maxWaiting = 2000
		const autoscalers, metrics, intervals = 1000, 100, 4
		s.latency = 10 * time.Millisecond
		q := func(i int) Query { return testQuery(fmt.Sprintf("metric_%d", i%metrics)) }
		for i := range autoscalers {
			defer f.subscribe(q(i), func(_ *Result, err error) {
				if err != nil {
					t.Error(err)
				}
			})()
		}
		time.Sleep(15 * time.Second)
		before := s.count()
		var all sync.WaitGroup
		for i := range autoscalers {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 15 * time.Millisecond)
				for range intervals {
					f.mustQuery(q(i))
					time.Sleep(15 * time.Second)
				}
			})
		}
		time.Sleep(intervals * 15 * time.Second)
		if got, want := s.count()-before, metrics*intervals; got != want {
			t.Errorf("%d evaluations in %d intervals, not %d", got, intervals, want)
		}
		all.Wait()
	})
}

func TestCallerCancels(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.latency = 10 * time.Second
		q := testQuery("a")
		waitForSlot(q)
		leaving, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := f.Query(leaving, q); !errors.Is(err, context.Canceled) {
				t.Errorf("the canceled caller got %v", err)
			}
		})
		all.Go(func() {
			if v := f.mustQuery(q); v != 1 {
				t.Errorf("the other caller got %v", v)
			}
		})
		time.Sleep(time.Second)
		leave()
		all.Wait()
	})
}

// Clients with a short timeout cost a slow source one evaluation, and get its result when they
// retry.
func TestCallersTimeOut(t *testing.T) {
	tests := map[string]struct {
		leave func(context.Context) (context.Context, context.CancelFunc)
		cause error
	}{
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, context.DeadlineExceeded},
		"hung up": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, context.Canceled},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
				s.latency = 10 * time.Second
				q := testQuery("a")
				waitForSlot(q)
				time.Sleep(12 * time.Second) // the result comes in the next slot
				for range 5 {
					ctx, cancel := test.leave(t.Context())
					_, err := f.Query(ctx, q)
					if reasonOf(err) != ReasonTimeout || !errors.Is(err, test.cause) {
						t.Errorf("after the timeout: %v", err)
					}
					cancel()
				}
				for range 2 {
					time.Sleep(7 * time.Second)
					began := time.Now()
					if v := f.mustQuery(q); v != 1 || time.Since(began) != 0 {
						t.Errorf("the next caller gets %v after %s", v, time.Since(began))
					}
				}
				if n := s.count(); n != 1 {
					t.Errorf("%d evaluations", n)
				}
				time.Sleep(15 * time.Second)
				if v := f.mustQuery(q); v != 2 {
					t.Errorf("an interval after the result: %v", v)
				}
			})
		})
	}
}

func TestFailuresAreShared(t *testing.T) {
	tests := map[string]struct {
		reply func(context.Context, string, time.Time) (*Result, error)
		want  []time.Duration
	}{
		"not for long, and longer with each": {
			reply: func(context.Context, string, time.Time) (*Result, error) {
				return nil, &Failure{Reason: ReasonBadStatus, Message: "500"}
			},
			want: []time.Duration{0, 1, 3, 7, 15, 30, 45},
		},
		"for an interval if the query is wrong": {reply: rejected, want: []time.Duration{0, 15, 30, 45}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
				s.setEvaluate(test.reply)
				q, began := testQuery("a"), time.Now()
				var got []time.Duration
				for time.Since(began) < time.Minute {
					before := s.count()
					if _, err := f.query(q); err == nil {
						t.Fatal("no error")
					}
					if s.count() > before {
						got = append(got, time.Since(began)/time.Second)
					}
					time.Sleep(100 * time.Millisecond)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("seconds at which the source was queried:\n%s", diff)
				}
			})
		})
	}
}

func TestFailedIntervals(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		q := testQuery("a")
		waitForSlot(q)
		good := f.mustQuery(q)
		s.setEvaluate(down)
		var got []int
		for range 6 {
			time.Sleep(7500 * time.Millisecond)
			_, err := f.query(q)
			var failed *EvaluationError
			if !errors.As(err, &failed) {
				got = append(got, 0)
				continue
			}
			got = append(got, failed.FailedIntervals)
			if failed.LastResult == nil || failed.LastResult.Samples[0].Value != good {
				t.Errorf("the last result is %v", failed.LastResult)
			}
		}
		if diff := cmp.Diff([]int{0, 1, 1, 2, 2, 3}, got); diff != "" {
			t.Error(diff)
		}
		s.setEvaluate(nil)
		time.Sleep(30 * time.Second)
		f.mustQuery(q)
		s.setEvaluate(down)
		time.Sleep(15 * time.Second)
		var failed *EvaluationError
		if _, err := f.query(q); !errors.As(err, &failed) || failed.FailedIntervals != 1 {
			t.Errorf("after a success the failures start at 1: %+v", failed)
		}
	})
}

func TestSourceBugs(t *testing.T) {
	tests := map[string]struct {
		reply func(context.Context, string, time.Time) (*Result, error)
		want  string
	}{
		"panic":         {func(context.Context, string, time.Time) (*Result, error) { panic("oh") }, `source "p": Internal: the source panicked: oh; see this server's log`},
		"nothing":       {func(context.Context, string, time.Time) (*Result, error) { return nil, nil }, `source "p": Internal: the source returned neither a result nor an error`},
		"unknown error": {func(context.Context, string, time.Time) (*Result, error) { return nil, errors.New("oh") }, `source "p": Internal: oh`},
		"unnamed":       {rejected, `source "p": Rejected: parse error`},
		"too many samples": {func(_ context.Context, _ string, at time.Time) (*Result, error) {
			return &Result{Samples: make([]Sample, maxSamples+1)}, nil
		}, `source "p": TooLarge: the result has 50001 samples, and the limit is 50000: aggregate in the query`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
				s.setEvaluate(test.reply)
				_, err := f.query(testQuery("a"))
				if err == nil || err.Error() != test.want {
					t.Errorf("got %v", err)
				}
				s.setEvaluate(nil)
				if v := f.mustQuery(testQuery("b")); v != 2 {
					t.Errorf("another query gets %v", v)
				}
			})
		})
	}
}

func TestLongMessagesAreTruncated(t *testing.T) {
	got := failureOf("p", &Failure{Message: "x" + strings.Repeat("ä", 10*maxMessage)})
	if len(got.Message) > maxMessage || got.Source != "p" || got.Reason != ReasonInternal {
		t.Errorf("%d bytes of %q: %q", len(got.Message), got.Source, got.Reason)
	}
}

func TestSourceReplaced(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		other := &fakeSource{}
		f.setSource("other", other)
		theirs := Query{Source: "other", Expression: "a", Interval: time.Hour}
		ours := Query{Source: "p", Expression: "a", Interval: time.Hour}
		waitForSlot(theirs)
		f.mustQuery(theirs)
		f.mustQuery(ours)

		f.setSource("p", nil)
		f.SourcesChanged()
		if _, err := f.query(ours); reasonOf(err) != ReasonUnknownSource {
			t.Errorf("of a source that is gone: %v", err)
		}
		replaced := &fakeSource{evaluate: func(_ context.Context, _ string, at time.Time) (*Result, error) { return singleResult(at, 42), nil }}
		f.setSource("p", replaced)
		f.SourcesChanged()
		if v := f.mustQuery(ours); v != 42 {
			t.Errorf("of a source that was replaced: %v", v)
		}
		// Nor is what the source before it said anything to fall back on.
		f.setSource("p", &fakeSource{evaluate: down})
		var failed *EvaluationError
		if _, err := f.query(ours); !errors.As(err, &failed) || failed.LastResult != nil || failed.FailedIntervals != 1 {
			t.Errorf("of a source that was replaced and fails: %+v", failed)
		}
		f.mustQuery(theirs)
		if s.count() != 1 || other.count() != 1 {
			t.Errorf("%d and %d evaluations of the others", s.count(), other.count())
		}
	})
}

func TestSourceReplacedDuringEvaluation(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.limits.concurrency = 1
		s.latency = 10 * time.Second
		q := testQuery("a")
		waitForSlot(q)
		var all sync.WaitGroup
		all.Go(func() {
			if v := f.mustQuery(q); v != 1 {
				t.Errorf("the caller of the old source got %v", v)
			}
		})
		synctest.Wait()
		f.setSource("p", &fakeSource{evaluate: func(_ context.Context, _ string, at time.Time) (*Result, error) { return singleResult(at, 42), nil }})
		all.Go(func() {
			if v := f.mustQuery(q); v != 42 {
				t.Errorf("the caller of the new source got %v", v)
			}
		})
		all.Wait()
		if v := f.mustQuery(q); v != 42 {
			t.Errorf("what is kept is %v", v)
		}
	})
}

func TestShutDown(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.latency = time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		stopped := make(chan struct{})
		d := NewEvaluator(f.clock, f.random, f.Evaluator.sources, 200)
		d.limits.concurrency = 1
		go func() { defer close(stopped); d.Run(ctx) }()
		var received []error
		stop := d.Subscribe(testQuery("subscribed"), time.Time{}, func(_ *Result, err error) { received = append(received, err) })
		for _, e := range []string{"a", "b"} { // running or queued behind the subscribed one
			all.Go(func() {
				if _, err := d.Query(t.Context(), testQuery(e)); reasonOf(err) != ReasonShuttingDown {
					t.Errorf("%s: %v", e, err)
				}
			})
		}
		synctest.Wait()
		cancel()
		all.Wait()
		<-stopped
		if _, err := d.Query(t.Context(), testQuery("c")); reasonOf(err) != ReasonShuttingDown {
			t.Error(err)
		}
		stop()
		d.Subscribe(testQuery("late"), time.Time{}, func(_ *Result, err error) { received = append(received, err) })()
		if len(received) != 1 || reasonOf(received[0]) != ReasonShuttingDown {
			t.Errorf("subscribers received %v", received)
		}
	})
}

func TestCachedDoesNotEvaluate(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		if _, _, known := f.Cached(testQuery("a")); known {
			t.Error("known before it was evaluated")
		}
		f.mustQuery(testQuery("a"))
		time.Sleep(time.Minute)
		a, err, known := f.Cached(testQuery("a"))
		if !known || err != nil || a.Samples[0].Value != 1 || s.count() != 1 {
			t.Errorf("%v %v %v after %d evaluations", a, err, known, s.count())
		}
	})
}

// BenchmarkQuery measures cached results with concurrent callers.
func BenchmarkQuery(b *testing.B) {
	d := NewEvaluator(clock.RealClock{}, func() float64 { return 0 }, func(string) (Source, bool) { return benchmarkSource, true }, 200)
	queries := make([]Query, 100)
	for i := range queries {
		queries[i] = Query{Source: "p", Expression: fmt.Sprint("metric_", i), Interval: time.Hour}
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, err := d.Query(b.Context(), queries[i%len(queries)]); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

var benchmarkSource Source = &fakeSource{}
