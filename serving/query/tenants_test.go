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
)

// tenantQuery returns a query of a tenant.
func tenantQuery(tenant, expression string) Query {
	q := testQuery(expression)
	q.Tenant = tenant
	return q
}

// sharedQuery returns a query for the whole cluster that a namespace asks for.
func sharedQuery(requester, expression string) Query {
	q := testQuery(expression)
	q.Requester = requester
	return q
}

// slowQueries returns a result at once, except for expressions that begin with "slow", which
// time out.
func slowQueries(ctx context.Context, expression string, at time.Time) (*Result, error) {
	if !strings.HasPrefix(expression, "slow") {
		time.Sleep(20 * time.Millisecond)
		return singleResult(at, 1), nil
	}
	select {
	case <-time.After(10 * time.Second):
	case <-ctx.Done():
	}
	return nil, &Failure{Reason: ReasonTimeout, Message: "query timed out: " + expression}
}

// However many slow queries one namespace polls, and whether they time out or break the
// connection: all queries of others succeed.
func TestTenantDoesNotAffectOthers(t *testing.T) {
	broken := func(ctx context.Context, expression string, at time.Time) (*Result, error) {
		result, err := slowQueries(ctx, expression, at)
		if err != nil {
			err = &Failure{Reason: ReasonConnectionFailed, Message: "connection reset by peer"}
		}
		return result, err
	}
	tests := map[string]struct {
		reply func(context.Context, string, time.Time) (*Result, error)
		of    func(tenant, expression string) Query
	}{
		"timeout":                               {slowQueries, tenantQuery},
		"broken connection":                     {broken, tenantQuery},
		"timeout, for the whole cluster":        {slowQueries, sharedQuery},
		"broken, all are for the whole cluster": {broken, sharedQuery},
	}
	for name, test := range tests {
		for _, n := range []int{0, 3, 20, 300} {
			t.Run(fmt.Sprint(name, " of ", n), func(t *testing.T) {
				withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
					const others, polls = 20, 40 // ten minutes
					s.setEvaluate(test.reply)
					var all sync.WaitGroup
					var mu sync.Mutex
					answered, failed, longest := 0, map[string]int{}, time.Duration(0)
					poll := func(q Query, after time.Duration, each func(error, time.Duration)) {
						all.Go(func() {
							time.Sleep(after)
							for range polls {
								began := time.Now()
								ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
								_, err := f.Query(ctx, q)
								cancel()
								each(err, time.Since(began))
								time.Sleep(15*time.Second - min(time.Since(began), 15*time.Second))
							}
						})
					}
					for i := range n {
						poll(test.of("shop", fmt.Sprint("slow", i)), time.Duration(i)*15*time.Second/time.Duration(n), func(error, time.Duration) {})
					}
					for i := range others {
						// Some are of the cluster, and several of one namespace.
						tenant := []string{"", "bank", "post", "news"}[i%4]
						poll(test.of(tenant, fmt.Sprint("good", i)), time.Duration(i)*750*time.Millisecond, func(err error, took time.Duration) {
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
						t.Errorf("queries of others succeeded %d times of %d, and failed:\n%s", answered, others*polls, diff)
					}
					if longest > time.Second {
						t.Errorf("others waited up to %s", longest)
					}
				})
			})
		}
	}
}

// A result for the whole cluster is shared by namespaces, which wait no longer for it than for one of
// their own.
func TestSharedQueryOfABusyTenant(t *testing.T) {
	for name, watch := range map[string]bool{"polled": false, "watched": true} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
				f.limits.concurrency = 4
				s.setEvaluate(slowQueries)
				for i := range 40 {
					defer f.subscribe(sharedQuery("shop", fmt.Sprint("slow", i)), func(*Result, error) {})()
				}
				for _, requester := range []string{"shop", "bank"} {
					if watch {
						defer f.subscribe(sharedQuery(requester, "good"), func(*Result, error) {})()
					}
				}
				done := make(chan struct{})
				go func() { // in the queue of the busy one
					defer close(done)
					f.mustQuery(sharedQuery("shop", "good"))
				}()
				synctest.Wait()
				began := time.Now()
				f.mustQuery(sharedQuery("bank", "good"))
				<-done
				if took := time.Since(began); took > time.Second {
					t.Errorf("it took %s", took)
				}
				if n := s.countOf("good"); n != 1 {
					t.Errorf("%d evaluations", n)
				}
			})
		})
	}
}

// One slow query for the whole cluster that several namespaces ask for is no fault of the source.
func TestSharedQueryThatFails(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.setEvaluate(slowQueries)
		for i := range 9 {
			_, _ = f.query(sharedQuery(fmt.Sprint("team-", i), "slow"))
			time.Sleep(15 * time.Second)
		}
		f.Evaluator.mu.Lock()
		defer f.Evaluator.mu.Unlock()
		if q := f.queues["p"]; q.breaker.open() || len(q.breaker.failing) != 1 {
			t.Errorf("open: %t, %d failures", q.breaker.open(), len(q.breaker.failing))
		}
	})
}

// A source that fails one tenant works for a new one, although it never succeeded before.
func TestNewTenant(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.setEvaluate(slowQueries)
		for i := range 20 {
			defer f.subscribe(tenantQuery("shop", fmt.Sprint("slow", i)), func(*Result, error) {})()
		}
		time.Sleep(5 * time.Minute)
		f.mustQuery(tenantQuery("bank", "good"))
	})
}

// The error text of one namespace's query is not returned to another.
func TestRejectionHasNoOtherErrorText(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.setEvaluate(slowQueries)
		for i := range 9 {
			defer f.subscribe(tenantQuery(fmt.Sprint("shop", i%3), fmt.Sprint("slow", i)), func(*Result, error) {})()
		}
		time.Sleep(time.Minute)
		var all sync.WaitGroup
		for i := range 5 { // one of them tries the source
			all.Go(func() {
				_, err := f.query(tenantQuery("bank", fmt.Sprint("slow_bank", i)))
				if err == nil || strings.Contains(err.Error(), "query timed out: slow") && !strings.Contains(err.Error(), "slow_bank") {
					t.Errorf("got %v", err)
				}
			})
		}
		all.Wait()
	})
}

// A dead source is not overloaded by tenants with one query each.
func TestDeadSourceOfManyTenants(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.setEvaluate(func(ctx context.Context, _ string, at time.Time) (*Result, error) {
			return slowQueries(ctx, "slow", at)
		})
		for i := range 100 {
			defer f.subscribe(tenantQuery(fmt.Sprint("team-", i), "up"), func(*Result, error) {})()
		}
		time.Sleep(time.Minute)
		before := s.count()
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		// One at a time that tries it, and one of those that have not failed yet.
		if n := s.count() - before; n > 36 {
			t.Errorf("%d evaluations in three minutes", n)
		}
		s.setEvaluate(nil)
		time.Sleep(maxBackoff + 15*time.Second)
		for i := range 100 {
			f.mustQuery(tenantQuery(fmt.Sprint("team-", i), "up"))
		}
	})
}

func TestTenantsTakeTurns(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.limits.concurrency = 1
		s.latency = time.Second
		var all sync.WaitGroup
		for _, q := range []Query{tenantQuery("a", "a1"), tenantQuery("a", "a2"), tenantQuery("a", "a3"), tenantQuery("b", "b1"), tenantQuery("b", "b2"), tenantQuery("c", "c1")} {
			all.Go(func() { f.mustQuery(q) })
			synctest.Wait()
		}
		all.Wait()
		if diff := cmp.Diff([]string{"a1", "a2", "b1", "c1", "a3", "b2"}, s.expressions); diff != "" {
			t.Errorf("evaluated in another order:\n%s", diff)
		}
	})
}

func TestFullQueueHasRoomForOthers(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.limits.concurrency, f.limits.maxQueued = 1, 10
		s.latency = time.Second
		var all sync.WaitGroup
		refused := 0
		var mu sync.Mutex
		for i := range 50 {
			all.Go(func() {
				if _, err := f.query(tenantQuery("a", fmt.Sprint(i))); reasonOf(err) == ReasonOverloaded {
					mu.Lock()
					defer mu.Unlock()
					refused++
				}
			})
		}
		synctest.Wait()
		f.mustQuery(tenantQuery("b", "good"))
		all.Wait()
		if refused != 50-6 {
			t.Errorf("%d of 50 were refused", refused)
		}
	})
}

// Cached queries of one tenant take no space from others, subscribed or not.
func TestCacheIsSharedFairly(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.limits.maxQueries, f.limits.maxCachedBytes = 40, 1000
		s.setEvaluate(func(_ context.Context, expression string, at time.Time) (*Result, error) {
			n := 1
			if strings.HasPrefix(expression, "long") {
				n = 300
			}
			return &Result{Time: at, Samples: make([]Sample, 1), Bytes: n}, nil
		})
		good := tenantQuery("bank", "good")
		f.mustQuery(good)
		var mu sync.Mutex
		reasons := map[Reason]int{}
		for i := range 5 {
			defer f.subscribe(tenantQuery("shop", fmt.Sprint("long", i)), func(_ *Result, err error) {
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
			_, _ = f.query(tenantQuery("shop", fmt.Sprint("many", i)))
			_, _ = f.query(tenantQuery("shop", fmt.Sprint("wide", i, strings.Repeat("x", 300))))
		}
		if _, err := f.query(tenantQuery("shop", strings.Repeat("x", 1001))); reasonOf(err) != ReasonOverloaded {
			t.Errorf("an expression beyond all bytes: %v", err)
		}
		before := s.count()
		f.mustQuery(good)
		for i := range 10 {
			f.mustQuery(tenantQuery("post", fmt.Sprint("good", i)))
		}
		if n := s.count() - before; n != 10 {
			t.Errorf("%d evaluations: what others hold was forgotten", n)
		}
		f.Evaluator.mu.Lock()
		defer f.Evaluator.mu.Unlock()
		if own := f.cache.tenants["shop"]; own.queries > 20 || own.bytes > 500 {
			t.Errorf("one tenant has %+v", own.usage)
		}
	})
}

// Requests that wait for a source that hangs are so many at most, and leave places for
// requests of others: beyond that they fail at once.
func TestMaxWaiting(t *testing.T) {
	for name, of := range map[string]func(tenant, expression string) Query{"of a namespace": tenantQuery, "for the whole cluster": sharedQuery} {
		t.Run(name, func(t *testing.T) { testMaxWaiting(t, of) })
	}
}

func testMaxWaiting(t *testing.T, of func(tenant, expression string) Query) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.limits.maxWaiting = 20
		s.latency = 30 * time.Second
		f.setSource("other", &fakeSource{})
		var all sync.WaitGroup
		var mu sync.Mutex
		got := map[Reason]int{}
		for range 400 {
			all.Go(func() {
				began := time.Now()
				_, err := f.query(of("shop", "hangs"))
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
		f.mustQuery(theirs)
		all.Wait()
		if diff := cmp.Diff(map[Reason]int{"": 10, ReasonOverloaded: 390}, got); diff != "" {
			t.Error(diff)
		}
		f.Evaluator.mu.Lock()
		defer f.Evaluator.mu.Unlock()
		if f.cache.total.waiting != 0 {
			t.Errorf("in the end %d wait", f.cache.total.waiting)
		}
	})
}

// A source that fails all tenants with timeouts is not queried for each, whatever their queries
// failed with before.
func TestBreakerOpensAfterOtherFailures(t *testing.T) {
	for _, before := range []Reason{ReasonPartialResponse, ReasonTooLarge, ReasonRejected, ReasonInternal} {
		t.Run(string(before), func(t *testing.T) {
			withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
				f.mustQuery(tenantQuery("bank", "good")) // its breaker stays closed
				for _, reason := range []Reason{before, ReasonTimeout} {
					s.setEvaluate(func(context.Context, string, time.Time) (*Result, error) {
						return nil, &Failure{Reason: reason}
					})
					for i := range 6 {
						_, _ = f.query(tenantQuery(fmt.Sprint("team-", i), "up"))
					}
					time.Sleep(16 * time.Second)
				}
				f.Evaluator.mu.Lock()
				defer f.Evaluator.mu.Unlock()
				if q := f.queues["p"]; !q.breaker.open() {
					t.Errorf("the circuit breaker is closed, with failures of %v", q.breaker.failing)
				}
			})
		})
	}
}

// badQueries are slowQueries, but the connection breaks for expressions that begin with "bad".
func badQueries(ctx context.Context, expression string, at time.Time) (*Result, error) {
	if strings.HasPrefix(expression, "bad") {
		return down(ctx, expression, at)
	}
	return slowQueries(ctx, expression, at)
}

// A watch does not get the failure of a request from a namespace whose circuit breaker is open.
func TestRejectionIsNotSentToWatches(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.setEvaluate(badQueries)
		theirs, own := sharedQuery("bank", "good"), sharedQuery("shop", "good")
		theirs.Interval, own.Interval = time.Second, time.Second
		var h recorder
		stop := f.subscribe(theirs, h.receive)
		time.Sleep(time.Second)
		for _, e := range []string{"bad0", "bad1"} {
			_, _ = f.query(tenantQuery("shop", e))
		}
		time.Sleep(time.Second)
		go func() { _, _ = f.query(tenantQuery("shop", "slow")) }() // the probe
		rejected := 0
		for range 9 {
			time.Sleep(untilNext(slotsOf(own), time.Now()))
			if _, err := f.query(own); err != nil {
				rejected++
			}
		}
		stop()
		time.Sleep(10 * time.Second)
		h.mu.Lock()
		defer h.mu.Unlock()
		if err := errors.Join(h.errs...); err != nil || rejected == 0 {
			t.Errorf("%d requests of one namespace were rejected, the other's watch got: %v", rejected, err)
		}
	})
}

// A query that is queued for a namespace whose circuit breaker opens meanwhile is evaluated for
// another one that waits for it.
func TestQueuedQueryOfFailingTenant(t *testing.T) {
	for name, watch := range map[string]bool{"polled": false, "watched": true} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
				f.limits.concurrency = 1
				s.setEvaluate(badQueries)
				s.latency = 100 * time.Millisecond
				f.mustQuery(tenantQuery("bank", "first"))
				var all sync.WaitGroup
				ask := func(q Query, receive func(*Result, error)) {
					all.Go(func() { receive(f.Query(t.Context(), q)) })
					synctest.Wait()
				}
				ignore := func(*Result, error) {}
				for _, e := range []string{"bad0", "bad1"} {
					ask(tenantQuery("shop", e), ignore)
				}
				ask(sharedQuery("shop", "good"), ignore)
				for i := range 3 { // so that the shared one is not moved to it at once
					ask(tenantQuery("bank", fmt.Sprint(i)), ignore)
				}
				var h recorder
				if watch {
					defer f.subscribe(sharedQuery("bank", "good"), h.receive)()
				} else {
					ask(sharedQuery("bank", "good"), h.receive)
				}
				ask(sharedQuery("shop", "good"), ignore)
				all.Wait()
				h.mu.Lock()
				defer h.mu.Unlock()
				if err := errors.Join(h.errs...); err != nil || len(h.errs) != 1 {
					t.Errorf("the other got %d results and: %v", len(h.errs), err)
				}
			})
		})
	}
}

// Queries for the whole cluster count for the namespace that asks for them first: others are cached.
func TestSharedQueriesOfOneTenant(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.limits.maxQueries, f.limits.maxCachedBytes = 10, 1000
		s.setEvaluate(func(_ context.Context, _ string, at time.Time) (*Result, error) {
			return &Result{Time: at, Samples: make([]Sample, 1), Bytes: 90}, nil
		})
		for i := range 5 {
			defer f.subscribe(sharedQuery("shop", fmt.Sprint(i)), func(*Result, error) {})()
		}
		synctest.Wait()
		f.mustQuery(sharedQuery("bank", "good"))
		if _, err := f.query(sharedQuery("shop", "more")); err == nil || !strings.Contains(err.Error(), `of namespace "shop"`) {
			t.Errorf("beyond its share: %v", err)
		}
	})
}

// A request that may not wait adds no query to the cache, and evicts none.
func TestRejectedRequestsEvictNothing(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.limits.maxWaiting, f.limits.maxQueries = 2, 10
		f.mustQuery(tenantQuery("shop", "good"))
		s.setEvaluate(slowQueries)
		go func() { _, _ = f.query(tenantQuery("shop", "slow")) }()
		synctest.Wait()
		for i := range 20 {
			if _, err := f.query(tenantQuery("shop", fmt.Sprint(i))); reasonOf(err) != ReasonOverloaded {
				t.Fatalf("got %v", err)
			}
		}
		if n, _ := f.cached(); n != 2 || s.countOf("good") != 1 {
			t.Errorf("%d queries are cached", n)
		}
		f.mustQuery(tenantQuery("shop", "good"))
		if n := s.countOf("good"); n != 1 {
			t.Errorf("%d evaluations: its result was evicted", n)
		}
	})
}

// A namespace keeps its open circuit breaker although another one was the last to ask for its
// queries, until it has asked nothing for long.
func TestOpenBreakerStays(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.setEvaluate(badQueries)
		f.mustQuery(tenantQuery("bank", "good"))
		for _, e := range []string{"bad0", "bad1"} {
			_, _ = f.query(sharedQuery("shop", e))
		}
		s.setEvaluate(nil)
		for _, e := range []string{"bad0", "bad1"} {
			time.Sleep(30 * time.Second)
			f.mustQuery(sharedQuery("bank", e))
		}
		time.Sleep(time.Minute)
		open := func() bool {
			f.Evaluator.mu.Lock()
			defer f.Evaluator.mu.Unlock()
			shop := f.queues["p"].tenants["shop"]
			return shop != nil && shop.breaker.open()
		}
		if !open() {
			t.Error("it was forgotten after two minutes")
		}
		for range 20 {
			time.Sleep(time.Minute)
			f.mustQuery(tenantQuery("bank", "good"))
		}
		if open() {
			t.Error("it is kept forever")
		}
	})
}

// A Retry-After holds all queries of the tenant that got it, polled and watched, and none of others. After it they go
// first, so that they get values between two of them.
func TestRetryAfterHoldsItsTenant(t *testing.T) {
	limits := func(_ context.Context, expression string, at time.Time) (*Result, error) {
		if strings.HasPrefix(expression, "hog") {
			return nil, &Failure{Reason: ReasonRateLimited, Message: "slow down", RetryAfter: time.Minute}
		}
		return singleResult(at, 1), nil
	}
	tests := map[string]struct {
		hog, own Query
		// most and least are the evaluations of the own query in ten minutes.
		most, least int
		others      bool
	}{
		"declared":                          {hog: tenantQuery("evil", "hog"), own: tenantQuery("evil", "own"), others: true, least: 8, most: 21},
		"for the whole cluster":             {hog: sharedQuery("evil", "hog"), own: sharedQuery("evil", "own"), others: true, least: 8, most: 21},
		"nobody else asks":                  {hog: tenantQuery("evil", "hog"), own: tenantQuery("evil", "own"), least: 8, most: 21},
		"of the cluster itself":             {hog: tenantQuery("", "hog"), own: tenantQuery("", "own"), others: true, least: 8, most: 21},
		"another tenant's query is no part": {hog: tenantQuery("evil", "hog"), own: tenantQuery("good", "own"), others: true, least: 40, most: 41},
	}
	for name, test := range tests {
		for _, watched := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", watched: ", watched), func(t *testing.T) {
				withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
					s.setEvaluate(limits)
					if watched {
						for _, q := range []Query{test.hog, test.own} {
							defer f.subscribe(q, func(*Result, error) {})()
						}
					}
					rejected := ""
					for range 40 {
						_, _ = f.query(test.hog)
						if _, err := f.query(test.own); err != nil {
							rejected = err.Error()
						}
						if test.others {
							f.mustQuery(tenantQuery("shop", "a"))
							f.mustQuery(sharedQuery("bank", "b"))
						}
						time.Sleep(15 * time.Second)
					}
					if n := s.countOf("hog"); n > 11 {
						t.Errorf("the query that is refused was sent %d times in ten minutes", n)
					}
					if n := s.countOf("own"); n < test.least || n > test.most {
						t.Errorf("another query was sent %d times in ten minutes", n)
					}
					if held := test.most < 41; held != strings.Contains(rejected, "RateLimited: the source asked for a pause") || strings.Contains(rejected, "slow down") {
						t.Errorf("another query got %q", rejected)
					}
				})
			})
		}
	}
}

// A success of an evaluation that started before a Retry-After does not end it, nor one of another tenant that closes
// the circuit breaker of the source; another source does.
func TestRetryAfterLasts(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.setEvaluate(func(_ context.Context, expression string, at time.Time) (*Result, error) {
			switch expression {
			case "hog":
				return nil, &Failure{Reason: ReasonRateLimited, RetryAfter: time.Minute}
			case "shorter":
				time.Sleep(time.Second)
				return nil, &Failure{Reason: ReasonRateLimited, RetryAfter: time.Second}
			}
			time.Sleep(time.Second)
			return singleResult(at, 1), nil
		})
		go func() { f.mustQuery(tenantQuery("evil", "slow")) }()
		go func() { _, _ = f.query(tenantQuery("evil", "shorter")) }()
		synctest.Wait()
		_, _ = f.query(tenantQuery("evil", "hog"))
		time.Sleep(2 * time.Second)
		for _, d := range []time.Duration{0, 50 * time.Second} {
			time.Sleep(d)
			if _, err := f.query(tenantQuery("evil", fmt.Sprint("own", d))); reasonOf(err) != ReasonRateLimited {
				t.Errorf("a query of the tenant: %v", err)
			}
		}
		time.Sleep(8 * time.Second)
		f.mustQuery(tenantQuery("evil", "own"))

		// No other tenant asks, whose queries succeed though.
		time.Sleep(time.Hour)
		_, _ = f.query(tenantQuery("evil", "hog"))
		for i := range 10 {
			go func() { f.mustQuery(tenantQuery("shop", fmt.Sprint(i))) }()
		}
		f.mustQuery(tenantQuery("shop", "a"))
		if _, err := f.query(tenantQuery("evil", "after another's success")); reasonOf(err) != ReasonRateLimited {
			t.Errorf("after another tenant's success: %v", err)
		}
		time.Sleep(time.Hour)
		_, _ = f.query(tenantQuery("evil", "hog"))
		f.setSource("p", &fakeSource{})
		f.mustQuery(tenantQuery("evil", "other source"))
	})
}

// A failure of an evaluation that started before a Retry-After does not end it either.
func TestRetryAfterLastsAfterAFailedProbe(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.setEvaluate(func(_ context.Context, expression string, at time.Time) (*Result, error) {
			switch {
			case expression == "hog":
				return nil, &Failure{Reason: ReasonRateLimited, RetryAfter: time.Minute}
			case strings.HasPrefix(expression, "late"):
				time.Sleep(time.Second)
				return nil, &Failure{Reason: ReasonTimeout}
			}
			return singleResult(at, 1), nil
		})
		f.mustQuery(tenantQuery("shop", "a"))
		for i := range minFailing { // opens the breaker of the tenant
			_, _ = f.query(tenantQuery("evil", fmt.Sprint("late", i)))
		}
		time.Sleep(10 * time.Second)
		go func() { _, _ = f.query(tenantQuery("evil", "late0")) }() // the probe
		synctest.Wait()
		_, _ = f.query(tenantQuery("evil", "hog"))
		time.Sleep(30 * time.Second)
		if n := s.countOf("late0"); n != 2 {
			t.Errorf("late0 was sent %d times", n)
		}
		if _, err := f.query(tenantQuery("evil", "own")); reasonOf(err) != ReasonRateLimited {
			t.Errorf("a query of the tenant: %v", err)
		}
	})
}
