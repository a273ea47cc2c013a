// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLive: a running evaluation ends when the last request leaves, if its query is live and nobody subscribes to it.
func TestLive(t *testing.T) {
	for name, test := range map[string]struct {
		live, subscribed bool
		// leave is when each request leaves, in seconds.
		leave []int
		want  time.Duration
	}{
		"one leaves":        {true, false, []int{2}, 2 * time.Second},
		"the last leaves":   {true, false, []int{4, 1, 2}, 4 * time.Second},
		"one stays":         {true, false, []int{1, 20}, 10 * time.Second},
		"not live":          {false, false, []int{1, 2}, 10 * time.Second},
		"with a subscriber": {true, true, []int{1, 2}, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
				q := testQuery("a")
				q.Live = test.live
				waitForSlot(q)
				began, took := time.Now(), time.Duration(0)
				s.setEvaluate(func(ctx context.Context, _ string, at time.Time) (*Result, error) {
					select {
					case <-ctx.Done():
					case <-time.After(10 * time.Second):
					}
					took = time.Since(began)
					return singleResult(at, 1), ctx.Err()
				})
				if test.subscribed {
					defer f.subscribe(q, func(*Result, error) {})()
				}
				var all sync.WaitGroup
				for _, seconds := range test.leave {
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second)
						defer cancel()
						if _, err := f.Query(ctx, q); (err == nil) != (seconds > 10) {
							t.Errorf("after %d s: %v", seconds, err)
						}
					})
				}
				time.Sleep(10*time.Second + time.Millisecond)
				all.Wait()
				synctest.Wait()
				if took != test.want || s.count() != 1 {
					t.Errorf("the first of %d evaluations ended after %s, want %s", s.count(), took, test.want)
				}
			})
		})
	}
}

// TestCanceledIsNoFailure: what nobody waited for says nothing about the source, and the next request is evaluated.
func TestCanceledIsNoFailure(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.setEvaluate(func(ctx context.Context, _ string, at time.Time) (*Result, error) {
			select {
			case <-ctx.Done():
				return nil, &Failure{Reason: ReasonTimeout, Message: "given up"}
			case <-time.After(5 * time.Second):
				return singleResult(at, 21), nil
			}
		})
		for i := range 20 {
			q := testQuery(fmt.Sprint(i % 5))
			q.Live = true
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := f.Query(ctx, q); !errors.Is(err, context.DeadlineExceeded) || s.count() != i+1 {
				t.Errorf("query %d, %d evaluations: %v", i, s.count(), err)
			}
			cancel()
		}
		f.Evaluator.mu.Lock()
		for tenant, queue := range f.queues["p"].tenants {
			if queue.breaker.failure != nil {
				t.Errorf("tenant %q has failed", tenant)
			}
		}
		f.Evaluator.mu.Unlock()
		q := testQuery("0")
		q.Live = true
		if got := f.mustQuery(q); got != 21 {
			t.Errorf("got %v", got)
		}
	})
}

// limitedSource has a limit of its own.
type limitedSource struct {
	*fakeSource
	limit int
}

func (s *limitedSource) Concurrency() int { return s.limit }

// TestConcurrentSource: a source says how many evaluations it takes at a time, and one that does not has the default.
func TestConcurrentSource(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, _ *fakeSource) {
		f.limits.concurrency = 4
		var got []int
		for round, limit := range []int{7, 0, 2, -1} {
			s := &fakeSource{latency: time.Second}
			f.setSource("p", &limitedSource{s, limit})
			if limit < 0 {
				f.setSource("p", s)
			}
			var all sync.WaitGroup
			for i := range 30 {
				q := testQuery(fmt.Sprint(round, i))
				q.Tenant = fmt.Sprint(i)
				all.Go(func() { f.mustQuery(q) })
			}
			all.Wait()
			got = append(got, s.maxRunning)
		}
		if diff := cmp.Diff([]int{7, 4, 2, 4}, got); diff != "" {
			t.Errorf("at a time (-want +got):\n%s", diff)
		}
	})
}

// TestFailuresOfImplementations: an error of another implementation opens no circuit breaker, and is passed on.
func TestFailuresOfImplementations(t *testing.T) {
	for reason, opens := range map[Reason]bool{ReasonServerError: false, ReasonRejected: false, ReasonTimeout: true, ReasonServiceMissing: true, ReasonLoop: true} {
		t.Run(string(reason), func(t *testing.T) {
			withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
				status := &metav1.Status{Code: 503, Message: strings.Repeat("x ", maxMessage)}
				s.setEvaluate(func(context.Context, string, time.Time) (*Result, error) {
					return nil, fmt.Errorf("ask: %w", &Failure{Reason: reason, Message: status.Message, Status: status})
				})
				for i := range 10 {
					_, err := f.query(testQuery(fmt.Sprint(i)))
					if failure, _ := errors.AsType[*Failure](err); failure.Reason != reason || i == 0 && failure.Status != status {
						t.Errorf("query %d: %+v", i, failure)
					}
				}
				open := func() bool {
					f.Evaluator.mu.Lock()
					defer f.Evaluator.mu.Unlock()
					return f.queues["p"].breaker.open()
				}
				if open() != opens {
					t.Errorf("the circuit breaker is open: %t", open())
				}
				s.setEvaluate(func(context.Context, string, time.Time) (*Result, error) {
					return nil, &Failure{Reason: ReasonServerError}
				})
				time.Sleep(time.Minute)
				if _, err := f.query(testQuery("0")); reasonOf(err) != ReasonServerError || open() {
					t.Errorf("the source answers again: %v, and the circuit breaker is open: %t", err, open())
				}
			})
		})
	}
}

// probedSource is asked outside of evaluations, too.
type probedSource struct {
	*fakeSource
	answered time.Time
}

func (s *probedSource) Answered() time.Time { return s.answered }

// TestProbedSource: queries of a source that answers again do not wait for the circuit breaker, unless their own failures
// may be due to them.
func TestProbedSource(t *testing.T) {
	for name, test := range map[string]struct {
		reason Reason
		// answered is how long after the last failure the source has answered.
		answered time.Duration
		want     bool
	}{
		"it answers again":      {ReasonConnectionFailed, time.Second, true},
		"it does not":           {ReasonConnectionFailed, -time.Second, false},
		"the queries take long": {ReasonTimeout, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, f *fixture, _ *fakeSource) {
				s := &probedSource{fakeSource: &fakeSource{}}
				f.setSource("p", s)
				s.setEvaluate(func(context.Context, string, time.Time) (*Result, error) { return nil, &Failure{Reason: test.reason} })
				// After a minute of failures the breaker waits for half a minute between two of them.
				began, last := time.Now(), time.Now()
				for i := 0; time.Since(began) < time.Minute || last.Before(time.Now()); i++ {
					time.Sleep(time.Second)
					before := s.count()
					_, _ = f.Query(t.Context(), testQuery(fmt.Sprint(i%5)))
					if s.count() > before {
						last = time.Now()
					}
				}
				time.Sleep(2 * time.Second)
				s.setEvaluate(nil)
				s.answered = last.Add(test.answered)
				_, err := f.Query(t.Context(), testQuery("0"))
				if (err == nil) != test.want {
					t.Errorf("after it answered: %v", err)
				}
			})
		})
	}
}
