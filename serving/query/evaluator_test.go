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

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
)

func TestAskSharesASlot(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
		q := asked("a")
		toSlot(q)
		var got []float64
		for range 4 {
			got = append(got, w.mustAsk(q))
			time.Sleep(5 * time.Second)
		}
		if diff := cmp.Diff([]float64{1, 1, 1, 2}, got); diff != "" {
			t.Error(diff)
		}
		if !slices.Equal(s.asked, []string{"a", "a"}) {
			t.Errorf("the source was asked %q", s.asked)
		}
	})
}

func TestAskSharesAnEvaluation(t *testing.T) {
	inWorld(t, Limits{MaxWaiting: 2000}, func(t *testing.T, w *world, s *source) {
		s.takes = time.Second
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				if v := w.mustAsk(asked("a")); v != 1 {
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
	inWorld(t, Limits{MaxWaiting: 2000}, func(t *testing.T, w *world, s *source) {
		const autoscalers, metrics, intervals = 1000, 100, 4
		s.takes = 10 * time.Millisecond
		question := func(i int) Query { return asked(fmt.Sprintf("metric_%d", i%metrics)) }
		for i := range autoscalers {
			defer w.subscribe(question(i), func(_ *Result, err error) {
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
					w.mustAsk(question(i))
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

func TestCallerThatLeaves(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
		s.takes = 10 * time.Second
		q := asked("a")
		toSlot(q)
		leaving, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := w.Query(leaving, q); !errors.Is(err, context.Canceled) {
				t.Errorf("the one who left got %v", err)
			}
		})
		all.Go(func() {
			if v := w.mustAsk(q); v != 1 {
				t.Errorf("the one who stayed got %v", v)
			}
		})
		time.Sleep(time.Second)
		leave()
		all.Wait()
	})
}

// Clients that are less patient than the source is slow cost it one evaluation, and get
// its answer when they ask again.
func TestCallersThatDoNotWaitLongEnough(t *testing.T) {
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
			inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
				s.takes = 10 * time.Second
				q := asked("a")
				toSlot(q)
				time.Sleep(12 * time.Second) // the answer comes in the next slot
				for range 5 {
					ctx, cancel := test.leave(t.Context())
					_, err := w.Query(ctx, q)
					if reasonOf(err) != ReasonTimeout || !errors.Is(err, test.cause) {
						t.Errorf("who left got %v", err)
					}
					cancel()
				}
				for range 2 {
					time.Sleep(7 * time.Second)
					began := time.Now()
					if v := w.mustAsk(q); v != 1 || time.Since(began) != 0 {
						t.Errorf("who asks next gets %v after %s", v, time.Since(began))
					}
				}
				if n := s.count(); n != 1 {
					t.Errorf("%d evaluations", n)
				}
				time.Sleep(15 * time.Second)
				if v := w.mustAsk(q); v != 2 {
					t.Errorf("an interval after the answer came, %v", v)
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
		"for an interval where the question is wrong": {reply: rejected, want: []time.Duration{0, 15, 30, 45}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
				s.set(test.reply)
				q, began := asked("a"), time.Now()
				var got []time.Duration
				for time.Since(began) < time.Minute {
					before := s.count()
					if _, err := w.ask(q); err == nil {
						t.Fatal("no error")
					}
					if s.count() > before {
						got = append(got, time.Since(began)/time.Second)
					}
					time.Sleep(100 * time.Millisecond)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("seconds at which the source was asked:\n%s", diff)
				}
			})
		})
	}
}

func TestFailuresCountIntervals(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
		q := asked("a")
		toSlot(q)
		good := w.mustAsk(q)
		s.set(down)
		var got []int
		for range 6 {
			time.Sleep(7500 * time.Millisecond)
			_, err := w.ask(q)
			var failed *EvaluationError
			if !errors.As(err, &failed) {
				got = append(got, 0)
				continue
			}
			got = append(got, failed.FailedIntervals)
			if failed.LastResult == nil || failed.LastResult.Samples[0].Value != good {
				t.Errorf("the last answer is %v", failed.LastResult)
			}
		}
		if diff := cmp.Diff([]int{0, 1, 1, 2, 2, 3}, got); diff != "" {
			t.Error(diff)
		}
		s.set(nil)
		time.Sleep(30 * time.Second)
		w.mustAsk(q)
		s.set(down)
		time.Sleep(15 * time.Second)
		var failed *EvaluationError
		if _, err := w.ask(q); !errors.As(err, &failed) || failed.FailedIntervals != 1 {
			t.Errorf("after an answer the failures begin anew: %+v", failed)
		}
	})
}

func TestForeignFaults(t *testing.T) {
	tests := map[string]struct {
		reply func(context.Context, string, time.Time) (*Result, error)
		want  string
	}{
		"panic":         {func(context.Context, string, time.Time) (*Result, error) { panic("oh") }, `source "p": Internal: the source panicked: oh; see this server's log`},
		"nothing":       {func(context.Context, string, time.Time) (*Result, error) { return nil, nil }, `source "p": Internal: the source returned neither a result nor an error`},
		"unknown error": {func(context.Context, string, time.Time) (*Result, error) { return nil, errors.New("oh") }, `source "p": Internal: oh`},
		"unnamed":       {rejected, `source "p": Rejected: parse error`},
		"too many samples": {func(_ context.Context, _ string, at time.Time) (*Result, error) {
			return &Result{Samples: make([]Sample, 4)}, nil
		}, `source "p": TooLarge: the answer has 4 samples, and may have 3: aggregate in the query`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Limits{MaxSamples: 3}, func(t *testing.T, w *world, s *source) {
				s.set(test.reply)
				_, err := w.ask(asked("a"))
				if err == nil || err.Error() != test.want {
					t.Errorf("got %v", err)
				}
				s.set(nil)
				if v := w.mustAsk(asked("b")); v != 2 {
					t.Errorf("another question gets %v", v)
				}
			})
		})
	}
}

func TestLongMessagesAreCut(t *testing.T) {
	message := "ä"
	for len(message) < 10*maxMessage {
		message += "ä"
	}
	got := failureOf("p", &Failure{Message: "x" + message})
	if len(got.Message) > maxMessage || got.Source != "p" || got.Reason != ReasonInternal {
		t.Errorf("%d bytes of %q: %q", len(got.Message), got.Source, got.Reason)
	}
}

func TestSourcesAreReplacedLive(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
		other := &source{}
		w.put("other", other)
		theirs := Query{Source: "other", Expression: "a", Interval: time.Hour}
		ours := Query{Source: "p", Expression: "a", Interval: time.Hour}
		toSlot(theirs)
		w.mustAsk(theirs)
		w.mustAsk(ours)

		w.put("p", nil)
		w.SourcesChanged()
		if _, err := w.ask(ours); reasonOf(err) != ReasonUnknownSource {
			t.Errorf("of a source that is gone: %v", err)
		}
		replaced := &source{reply: func(_ context.Context, _ string, at time.Time) (*Result, error) { return number(at, 42), nil }}
		w.put("p", replaced)
		w.SourcesChanged()
		if v := w.mustAsk(ours); v != 42 {
			t.Errorf("of a source that was replaced: %v", v)
		}
		// Nor is what the source before it said anything to fall back on.
		w.put("p", &source{reply: down})
		var failed *EvaluationError
		if _, err := w.ask(ours); !errors.As(err, &failed) || failed.LastResult != nil || failed.FailedIntervals != 1 {
			t.Errorf("of a source that was replaced and fails: %+v", failed)
		}
		w.mustAsk(theirs)
		if s.count() != 1 || other.count() != 1 {
			t.Errorf("%d and %d evaluations of the others", s.count(), other.count())
		}
	})
}

func TestSourceReplacedWhileAsked(t *testing.T) {
	inWorld(t, Limits{Concurrency: 1}, func(t *testing.T, w *world, s *source) {
		s.takes = 10 * time.Second
		q := asked("a")
		toSlot(q)
		var all sync.WaitGroup
		all.Go(func() {
			if v := w.mustAsk(q); v != 1 {
				t.Errorf("who asked the old source got %v", v)
			}
		})
		synctest.Wait()
		w.put("p", &source{reply: func(_ context.Context, _ string, at time.Time) (*Result, error) { return number(at, 42), nil }})
		all.Go(func() {
			if v := w.mustAsk(q); v != 42 {
				t.Errorf("who asked the new source got %v", v)
			}
		})
		all.Wait()
		if v := w.mustAsk(q); v != 42 {
			t.Errorf("what is kept is %v", v)
		}
	})
}

func TestShutDown(t *testing.T) {
	inWorld(t, Limits{Concurrency: 1}, func(t *testing.T, w *world, s *source) {
		s.takes = time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		stopped := make(chan struct{})
		d := NewEvaluator(w.clock, w.random, w.Evaluator.sources, Limits{Concurrency: 1})
		go func() { defer close(stopped); d.Run(ctx) }()
		var heard []error
		stop := d.Subscribe(asked("followed"), time.Time{}, func(_ *Result, err error) { heard = append(heard, err) })
		for _, e := range []string{"a", "b"} { // running or queued behind the followed one
			all.Go(func() {
				if _, err := d.Query(t.Context(), asked(e)); reasonOf(err) != ReasonShuttingDown {
					t.Errorf("%s: %v", e, err)
				}
			})
		}
		synctest.Wait()
		cancel()
		all.Wait()
		<-stopped
		if _, err := d.Query(t.Context(), asked("c")); reasonOf(err) != ReasonShuttingDown {
			t.Error(err)
		}
		stop()
		d.Subscribe(asked("late"), time.Time{}, func(_ *Result, err error) { heard = append(heard, err) })()
		if len(heard) != 1 || reasonOf(heard[0]) != ReasonShuttingDown {
			t.Errorf("followers heard %v", heard)
		}
	})
}

func TestNewestDoesNotEvaluate(t *testing.T) {
	inWorld(t, Limits{}, func(t *testing.T, w *world, s *source) {
		if _, _, known := w.Cached(asked("a")); known {
			t.Error("known before it was asked")
		}
		w.mustAsk(asked("a"))
		time.Sleep(time.Minute)
		a, err, known := w.Cached(asked("a"))
		if !known || err != nil || a.Samples[0].Value != 1 || s.count() != 1 {
			t.Errorf("%v %v %v after %d evaluations", a, err, known, s.count())
		}
	})
}

// BenchmarkAsk is what an answer costs that is there already, for many who ask at once.
func BenchmarkAsk(b *testing.B) {
	d := NewEvaluator(clock.RealClock{}, func() float64 { return 0 }, func(string) (Source, bool) { return benchmarked, true }, Limits{})
	questions := make([]Query, 100)
	for i := range questions {
		questions[i] = Query{Source: "p", Expression: fmt.Sprint("metric_", i), Interval: time.Hour}
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, err := d.Query(b.Context(), questions[i%len(questions)]); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

var benchmarked Source = &source{}
