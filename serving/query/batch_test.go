// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// batchQuery returns the query for one value of a label, of which several are evaluated as "all(A|B)".
func batchQuery(value string) Query {
	q := testQuery("one(" + value + ")")
	q.Tenant = "shop"
	q.Batch = NewBatch(BatchTemplate{Template: "all(\x000)", Labels: [MaxBatchLabels]BatchLabel{{Name: "q", Value: value, Alternative: value, Added: true}}})
	return q
}

// batchResult answers a batchQuery, alone or with others. The value is the length of that of the label.
func batchResult(_ context.Context, expression string, at time.Time) (*Result, error) {
	kind, values, _ := strings.Cut(strings.TrimSuffix(expression, ")"), "(")
	result := &Result{Time: at, Bytes: 100 * (strings.Count(values, "|") + 1)}
	for value := range strings.SplitSeq(values, "|") {
		labels := map[string]string{"unit": "items"}
		if kind == "all" {
			labels["q"] = value
		}
		if value != "none" {
			result.Samples = append(result.Samples, Sample{Labels: labels, Value: float64(len(value)), Time: at})
		}
	}
	return result, nil
}

// pollAll polls batch queries once, one after another, and returns the expressions that the source then evaluated.
func (f *fixture) pollAll(s *fakeSource, values ...string) []string {
	f.t.Helper()
	before := s.count()
	for _, value := range values {
		result, err := f.Query(f.t.Context(), batchQuery(value))
		if err != nil {
			f.t.Errorf("%s: %v", value, err)
			continue
		}
		want, _ := batchResult(context.Background(), "one("+value+")", result.Time)
		want.Bytes = result.Bytes
		if diff := cmp.Diff(want.Samples, result.Samples); diff != "" {
			f.t.Errorf("%s (-want +got):\n%s", value, diff)
		}
	}
	return s.since(before)
}

// since returns the expressions that were evaluated after that many.
func (s *fakeSource) since(n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.expressions[n:])
}

// withBatches is withFixture, at the start of a slot of batch queries.
func withBatches(t *testing.T, test func(t *testing.T, f *fixture, s *fakeSource)) {
	t.Helper()
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.setEvaluate(batchResult)
		waitForSlot(batchQuery("a"))
		test(t, f, s)
	})
}

func wantExpressions(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), append([]string{}, got...)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

const interval = 15 * time.Second

func TestQueriesAreEvaluatedTogether(t *testing.T) {
	withBatches(t, func(t *testing.T, f *fixture, s *fakeSource) {
		wantExpressions(t, "new", f.pollAll(s, "a", "bb", "A", "none"), "one(a)", "one(bb)", "one(A)", "one(none)")
		wantExpressions(t, "in the same slot", f.pollAll(s, "a", "bb"))
		time.Sleep(interval)
		wantExpressions(t, "then", f.pollAll(s, "bb", "A", "a", "none", "ccc"), "all(A|a|bb|none)", "one(ccc)")
		time.Sleep(interval)
		wantExpressions(t, "after one was new", f.pollAll(s, "ccc", "a", "A", "bb"), "all(A|a|bb|ccc|none)")
		for range 5 {
			time.Sleep(interval)
			f.pollAll(s, "a", "bb")
		}
		time.Sleep(interval)
		wantExpressions(t, "once others are not asked for", f.pollAll(s, "a", "bb", "ccc"), "all(a|bb)", "one(ccc)")
	})
}

// What the source answers to a query alone decides about it alone.
func TestFailedQueryIsNotEvaluatedWithOthers(t *testing.T) {
	withBatches(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.setEvaluate(func(ctx context.Context, expression string, at time.Time) (*Result, error) {
			if strings.Contains(expression, "bad") {
				return rejected(ctx, expression, at)
			}
			return batchResult(ctx, expression, at)
		})
		for range 3 {
			if _, err := f.query(batchQuery("bad")); reasonOf(err) != ReasonRejected {
				t.Errorf("the bad one: %v", err)
			}
			f.pollAll(s, "a", "bb")
			time.Sleep(interval)
		}
		if got := s.countOf("all(a|bb)"); got != 2 || s.countOf("one(bad)") != 3 {
			t.Errorf("evaluated %q", s.since(0))
		}
	})
}

func TestFailedBatch(t *testing.T) {
	for name, failure := range map[string]*Failure{
		"too large":    {Reason: ReasonTooLarge},
		"rejected":     {Reason: ReasonRejected},
		"malformed":    {Reason: ReasonMalformed},
		"not complete": {Reason: ReasonPartialResponse},
	} {
		t.Run(name, func(t *testing.T) {
			withBatches(t, func(t *testing.T, f *fixture, s *fakeSource) {
				s.latency = time.Second
				f.pollAll(s, "a", "bb", "ccc")
				s.setEvaluate(func(ctx context.Context, expression string, at time.Time) (*Result, error) {
					if strings.HasPrefix(expression, "all") {
						return nil, failure
					}
					return batchResult(ctx, expression, at)
				})
				time.Sleep(interval)
				before := s.count()
				var all sync.WaitGroup
				for _, value := range []string{"a", "bb"} {
					all.Go(func() { f.mustQuery(batchQuery(value)) })
				}
				all.Wait()
				got := slices.Sorted(slices.Values(s.since(before)))
				wantExpressions(t, "those that are waited for", got, "all(a|bb|ccc)", "one(a)", "one(bb)")
				wantExpressions(t, "the other", f.pollAll(s, "ccc"), "one(ccc)")
				if r, _ := f.Query(t.Context(), batchQuery("a")); r == nil {
					t.Error("the failure of the batch is that of a query")
				}
				for range 4 {
					time.Sleep(interval)
					wantExpressions(t, "for a while", f.pollAll(s, "a", "bb"), "one(a)", "one(bb)")
				}
				s.setEvaluate(batchResult)
				time.Sleep(batchPause)
				f.pollAll(s, "a", "bb")
				time.Sleep(interval)
				wantExpressions(t, "later", f.pollAll(s, "a", "bb"), "all(a|bb)")
			})
		})
	}
}

// A source that has no time or no room for several queries is not asked for each of them at once.
func TestBatchThatIsNotAnswered(t *testing.T) {
	for name, tc := range map[string]struct {
		failure *Failure
		then    []string
	}{
		"out of time":     {&Failure{Reason: ReasonTimeout}, []string{"one(a)", "one(bb)", "one(ccc)"}},
		"another status":  {&Failure{Reason: ReasonBadStatus}, []string{"one(a)", "one(bb)", "one(ccc)"}},
		"a limit":         {&Failure{Reason: ReasonRateLimited}, []string{"all(a|bb|ccc)"}},
		"down":            {&Failure{Reason: ReasonConnectionFailed}, []string{"all(a|bb|ccc)"}},
		"wants no secret": {&Failure{Reason: ReasonCredentials}, []string{"all(a|bb|ccc)"}},
	} {
		t.Run(name, func(t *testing.T) {
			withBatches(t, func(t *testing.T, f *fixture, s *fakeSource) {
				f.pollAll(s, "a", "bb", "ccc")
				s.setEvaluate(func(context.Context, string, time.Time) (*Result, error) { return nil, tc.failure })
				time.Sleep(interval)
				before := s.count()
				if _, err := f.query(batchQuery("a")); reasonOf(err) != tc.failure.Reason {
					t.Errorf("a: %v", err)
				}
				wantExpressions(t, "the source", s.since(before), "all(a|bb|ccc)")
				if n := f.cache.entries[batchQuery("bb")].failedIntervals; n != 0 {
					t.Errorf("a query that was not asked for has failed in %d intervals", n)
				}
				s.setEvaluate(batchResult)
				time.Sleep(interval)
				wantExpressions(t, "then", f.pollAll(s, "a", "bb", "ccc"), tc.then...)
			})
		})
	}
}

// After a result that is too large fewer queries are evaluated together, and after a while all again.
func TestBatchesGetSmaller(t *testing.T) {
	withBatches(t, func(t *testing.T, f *fixture, s *fakeSource) {
		var values []string
		for i := range 120 {
			values = append(values, fmt.Sprintf("%03d", i))
		}
		f.pollAll(s, values...)
		limit := 30
		s.setEvaluate(func(ctx context.Context, expression string, at time.Time) (*Result, error) {
			if strings.Count(expression, "|") >= limit {
				return nil, &Failure{Reason: ReasonTooLarge}
			}
			return batchResult(ctx, expression, at)
		})
		for _, want := range []int{1 + 4, 4, 4} {
			time.Sleep(interval)
			if got := f.pollAll(s, values...); len(got) != want {
				t.Errorf("%d evaluations, want %d", len(got), want)
			}
		}
		limit = 1000
		time.Sleep(batchPause)
		f.pollAll(s, values...)
		time.Sleep(interval)
		if got := f.pollAll(s, values...); len(got) != 1 {
			t.Errorf("after a while %d evaluations", len(got))
		}
	})
}

// An evaluation reads all combinations of the values of several labels, so they must be those of its queries.
func TestBatchReadsFewCombinations(t *testing.T) {
	of := func(a, b int) Query {
		q := testQuery(fmt.Sprintf("one(%d,%d)", a, b))
		q.Tenant = "shop"
		q.Batch = NewBatch(BatchTemplate{Template: "all(\x000,\x001)", Labels: [MaxBatchLabels]BatchLabel{
			{Name: "a", Value: fmt.Sprint(a), Alternative: fmt.Sprint(a)}, {Name: "b", Value: fmt.Sprint(b), Alternative: fmt.Sprint(b)},
		}})
		return q
	}
	all, diagonal := []Query{}, []Query{}
	for a := range 8 {
		for b := range 8 {
			all = append(all, of(a, b))
		}
		diagonal = append(diagonal, of(a, a))
	}
	for name, queries := range map[string][]Query{"all": all, "the diagonal": diagonal} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
				read := 0
				s.setEvaluate(func(_ context.Context, expression string, at time.Time) (*Result, error) {
					_, values, _ := strings.Cut(strings.TrimSuffix(expression, ")"), "(")
					as, bs, _ := strings.Cut(values, ",")
					result := &Result{Time: at}
					for a := range strings.SplitSeq(as, "|") {
						for b := range strings.SplitSeq(bs, "|") {
							read++
							value, err := strconv.ParseFloat(a+b, 64)
							if err != nil {
								return nil, err
							}
							result.Samples = append(result.Samples, Sample{Labels: map[string]string{"a": a, "b": b}, Value: value, Time: at})
						}
					}
					return result, nil
				})
				waitForSlot(queries[0])
				for range 2 {
					before := s.count()
					read = 0
					for _, q := range queries {
						labels := q.Batch.labels()
						if got := fmt.Sprintf("%02.0f", f.mustQuery(q)); got != labels[0].Value+labels[1].Value {
							t.Errorf("%s: %s", q.Expression, got)
						}
					}
					if n := s.count() - before; read > 2*len(queries) || n > len(queries) {
						t.Errorf("%d evaluations read %d combinations for %d queries", n, read, len(queries))
					}
					time.Sleep(interval)
				}
				if got := s.count(); got >= 2*len(queries) {
					t.Errorf("%d evaluations: none of several queries", got)
				}
			})
		})
	}
}

// A source that removes the label by which it selected is asked for each query.
func TestBatchWithoutItsLabel(t *testing.T) {
	withBatches(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.pollAll(s, "a", "bb")
		s.setEvaluate(func(ctx context.Context, expression string, at time.Time) (*Result, error) {
			result, err := batchResult(ctx, expression, at)
			for _, sample := range result.Samples {
				delete(sample.Labels, "q")
			}
			return result, err
		})
		time.Sleep(interval)
		wantExpressions(t, "the source", f.pollAll(s, "a", "bb"), "all(a|bb)", "one(a)", "one(bb)")
	})
}

// A source that is down fails all at once, and is not asked again for each.
func TestBatchOfASourceThatIsDown(t *testing.T) {
	withBatches(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.pollAll(s, "a", "bb", "ccc")
		s.setEvaluate(down)
		time.Sleep(interval)
		before := s.count()
		for _, value := range []string{"a", "bb", "ccc"} {
			if _, err := f.query(batchQuery(value)); reasonOf(err) != ReasonConnectionFailed {
				t.Errorf("%s: %v", value, err)
			}
		}
		wantExpressions(t, "while it is down", s.since(before), "all(a|bb|ccc)")
		s.setEvaluate(batchResult)
		time.Sleep(interval)
		wantExpressions(t, "when it is back", f.pollAll(s, "a", "bb", "ccc"), "all(a|bb|ccc)")
	})
}

func TestBatchIsBounded(t *testing.T) {
	for name, length := range map[string]int{"by number": 4, "by bytes": 60} {
		t.Run(name, func(t *testing.T) {
			withBatches(t, func(t *testing.T, f *fixture, s *fakeSource) {
				values := make([]string, 2*maxBatch+10)
				for i := range values {
					values[i] = fmt.Sprintf("%0*d", length, i)
				}
				f.pollAll(s, values...)
				time.Sleep(interval)
				got, asked := f.pollAll(s, values...), 0
				for _, expression := range got {
					n := strings.Count(expression, "|") + 1
					if asked += n; n > maxBatch || len(expression) > maxBatchBytes {
						t.Errorf("an expression has %d values and %d bytes", n, len(expression))
					}
				}
				least := max(3, (length+1)*len(values)/maxBatchBytes+1)
				if asked != len(values) || len(got) < least || len(got) > least+1 {
					t.Errorf("%d evaluations of %d values", len(got), asked)
				}
			})
		})
	}
}

// Queries of two tenants are not evaluated together, nor those of two requesters of a query without one.
func TestBatchesOfTenants(t *testing.T) {
	withBatches(t, func(t *testing.T, f *fixture, s *fakeSource) {
		of := func(tenant, requester, value string) Query {
			q := batchQuery(value)
			q.Tenant, q.Requester, q.Expression = tenant, requester, q.Expression+tenant+requester
			return q
		}
		queries := []Query{of("shop", "", "a"), of("bank", "", "b"), of("", "dev", "c"), of("", "ops", "d"), of("bank", "", "e")}
		s.setEvaluate(func(ctx context.Context, expression string, at time.Time) (*Result, error) {
			before, _, _ := strings.Cut(expression, ")")
			return batchResult(ctx, before+")", at)
		})
		for range 2 {
			for _, q := range queries {
				f.mustQuery(q)
			}
			time.Sleep(interval)
		}
		wantExpressions(t, "then", s.since(len(queries)), "one(a)shop", "all(b|e)", "one(c)dev", "one(d)ops")
		other := of("", "dev", "f")
		f.mustQuery(other)
		time.Sleep(interval)
		for _, q := range []*Query{&other, &queries[2]} {
			q.Requester = "ops" // not the first requester of either
			f.mustQuery(*q)
		}
		wantExpressions(t, "of another requester", s.since(s.count()-2), "one(f)dev", "one(c)dev")
		if shop, bank := f.cache.usage("shop").bytes, f.cache.usage("bank").bytes; bank != 2*shop || shop < 100 {
			t.Errorf("%d bytes of shop, which has one result, and %d of bank, which has two", shop, bank)
		}
	})
}

// Watched queries are evaluated together at the start of the slot, as of that instant, with the others that are polled.
func TestWatchedQueriesAreEvaluatedTogether(t *testing.T) {
	withBatches(t, func(t *testing.T, f *fixture, s *fakeSource) {
		var mu sync.Mutex
		got := map[string][]time.Time{}
		for _, value := range []string{"a", "bb"} {
			defer f.subscribe(batchQuery(value), func(r *Result, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil || len(r.Samples) != 1 || r.Samples[0].Value != float64(len(value)) {
					t.Errorf("%s: %+v, %v", value, r, err)
				}
				got[value] = append(got[value], r.Time)
			})()
		}
		time.Sleep(time.Second)
		f.pollAll(s, "ccc")
		before := s.count()
		time.Sleep(2 * interval)
		wantExpressions(t, "watched", s.since(before), "all(a|bb|ccc)", "all(a|bb|ccc)")
		wantExpressions(t, "polled", f.pollAll(s, "ccc", "a"))
		mu.Lock()
		defer mu.Unlock()
		start := slotsOf(batchQuery("a")).Start(time.Now())
		want := []time.Time{start.Add(-2 * interval), start.Add(-interval), start}
		if diff := cmp.Diff(map[string][]time.Time{"a": want, "bb": want}, got); diff != "" {
			t.Errorf("results for instants (-want +got):\n%s", diff)
		}
	})
}

// Who waits for a batch gets its result though the source was replaced, and those who ask later that of the new one.
func TestBatchOfAReplacedSource(t *testing.T) {
	withBatches(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.pollAll(s, "a", "bb")
		s.latency = 5 * time.Second
		time.Sleep(interval)
		var all sync.WaitGroup
		all.Go(func() { f.mustQuery(batchQuery("bb")) })
		time.Sleep(time.Second)
		other := &fakeSource{}
		other.setEvaluate(batchResult)
		f.setSource("p", other)
		f.mustQuery(batchQuery("a"))
		f.mustQuery(batchQuery("bb"))
		all.Wait()
		wantExpressions(t, "the new source", other.since(0), "one(a)", "one(bb)")
		wantExpressions(t, "the old source", s.since(2), "all(a|bb)")
	})
}

// A batch of a replaced source ends once nobody waits for any of its parts.
func TestUnwantedBatchIsCanceled(t *testing.T) {
	withBatches(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.pollAll(s, "a", "bb")
		var ended atomic.Int32
		s.setEvaluate(func(ctx context.Context, _ string, _ time.Time) (*Result, error) {
			<-ctx.Done()
			ended.Add(1)
			return nil, ctx.Err()
		})
		time.Sleep(interval)
		for _, value := range []string{"a", "bb"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = f.Query(ctx, batchQuery(value))
			cancel()
		}
		other := &fakeSource{}
		other.setEvaluate(batchResult)
		f.setSource("p", other)
		f.mustQuery(batchQuery("a"))
		if ended.Load() != 0 {
			t.Error("the batch ended while one of its queries had not been asked again")
		}
		f.mustQuery(batchQuery("bb"))
		time.Sleep(time.Millisecond)
		if ended.Load() != 1 {
			t.Error("the batch goes on")
		}
	})
}

// A slow batch serves clients with a short timeout when they retry, also in a later slot.
func TestCallersOfABatchTimeOut(t *testing.T) {
	withBatches(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.pollAll(s, "a", "bb")
		s.latency = interval + 5*time.Second
		time.Sleep(interval)
		before := s.count()
		for _, value := range []string{"a", "bb"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := f.Query(ctx, batchQuery(value)); reasonOf(err) != ReasonTimeout {
				t.Errorf("%s: %v", value, err)
			}
			cancel()
		}
		time.Sleep(s.latency)
		f.pollAll(s, "a", "bb")
		wantExpressions(t, "the source", s.since(before), "all(a|bb)")
	})
}

// Queries that wait for a busy source are evaluated with the first one that starts.
func TestQueuedQueriesAreEvaluatedTogether(t *testing.T) {
	withBatches(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.pollAll(s, "a", "bb", "ccc")
		f.limits.concurrency = 1
		s.latency = time.Second
		time.Sleep(interval)
		before := s.count()
		var all sync.WaitGroup
		all.Go(func() { f.mustQuery(batchQuery("other")) })
		time.Sleep(100 * time.Millisecond)
		for _, value := range []string{"a", "bb", "ccc"} {
			all.Go(func() { f.mustQuery(batchQuery(value)) })
		}
		all.Wait()
		wantExpressions(t, "the source", s.since(before), "one(other)", "all(a|bb|ccc)")
	})
}
