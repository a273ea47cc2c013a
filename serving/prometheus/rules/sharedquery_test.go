// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// The cached queries are bounded in bytes, whatever selectors clients write.
func TestSharedQueriesAreBounded(t *testing.T) {
	mq := &query.MetricQuery{Query: query.Query{Expression: strings.Repeat("x", 64<<10)}}
	shared := newSharedQueries()
	key := func(i int) sharedKey { return sharedKey{namespace: "shop", series: fmt.Sprintf("a=%d", i)} }
	for i := range 1000 {
		shared.Add(key(i), &sharedQuery{query: mq})
	}
	sum := 0
	for i := range 1000 {
		if q, cached := shared.Get(key(i)); cached {
			sum += len(q.query.Query.Expression)
		}
	}
	if sum > maxSharedBytes || sum < maxSharedBytes/2 {
		t.Errorf("%d bytes are cached", sum)
	}
	shared.Add(key(999), &sharedQuery{})
	if q, cached := shared.Get(key(999)); !cached || q.query != nil {
		t.Errorf("that there is none was not cached: %v", q)
	}
}

// A client with ever other selectors does not evict the queries that others use.
func TestSharedQueriesKeepWhatIsUsed(t *testing.T) {
	c := newCatalog(t, backend([]v1alpha1.MetricRule{{SeriesQuery: "requests", Resources: namespacePod}}, nil), seriesOf("requests", "namespace", "pod"))
	ask := func(series string) {
		t.Helper()
		r := pods("shop", "requests", "a")
		r.Series = selector(t, series)
		if _, _, err := c.ObjectQuery(r); err != nil {
			t.Fatal(err)
		}
	}
	ask("verb=GET")
	values := make([]string, maxSharedSelector)
	for i := range values {
		values[i] = fmt.Sprint("v", i)
	}
	ask("verb in (" + strings.Join(values, ",") + ")")
	if n := c.shared.Len(); n != 1 {
		t.Errorf("%d queries are cached, want that of the short selector", n)
	}
	w := newSharedQueries()
	used := sharedKey{namespace: "shop"}
	w.Add(used, &sharedQuery{})
	for i := range maxSharedQueries + 10 {
		w.Add(sharedKey{series: fmt.Sprint(i)}, &sharedQuery{})
		if _, cached := w.Get(used); !cached {
			t.Fatalf("after %d others it is evicted", i)
		}
	}
}

func TestSharedQueryIsForMoreThanAFewObjects(t *testing.T) {
	const interval = 15 * time.Second
	type request struct {
		// after is how long after the one before it is.
		after time.Duration
		// first and n are the pods that it names.
		first, n int
		shared   bool
	}
	// repeat has requests of autoscalers in turn.
	repeat := func(n, autoscalers int, of request) (all []request) {
		for i := range n {
			r := of
			r.first = i % autoscalers * of.n
			all = append(all, r)
		}
		return all
	}
	tests := map[string]struct {
		series   int
		requests []request
	}{
		"few of many":                  {1000, repeat(40, 1, request{after: interval, n: 3})},
		"few of many, often":           {1000, repeat(400, 4, request{after: time.Second, n: 3})},
		"few of few":                   {30, repeat(3, 1, request{after: interval, n: 3, shared: true})},
		"a large part":                 {1000, repeat(3, 1, request{after: interval, n: 100, shared: true})},
		"many autoscalers":             {1000, slices.Concat(repeat(4, 4, request{after: time.Second, n: 3}), []request{{time.Second, 500, 3, true}}, repeat(100, 5, request{after: time.Second, n: 3, shared: true}))},
		"many, but slowly":             {1000, repeat(100, 50, request{after: 4 * time.Second, n: 3})},
		"a large part together":        {1000, []request{{0, 0, 40, false}, {time.Second, 40, 40, false}, {time.Second, 80, 40, true}}},
		"the same part again":          {1000, []request{{0, 0, 40, false}, {time.Second, 0, 40, false}, {time.Second, 0, 40, false}}},
		"not together in the next one": {1000, []request{{0, 0, 40, false}, {time.Second, 40, 40, false}, {interval, 80, 40, false}}},
		"it stays so for ten minutes":  {1000, slices.Concat([]request{{0, 0, 100, true}}, repeat(39, 1, request{after: interval, n: 3, shared: true}), repeat(9, 1, request{after: interval, n: 3}))},
		"too many series":              {20_001, repeat(100, 100, request{after: time.Second, n: 3000})},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, now := sharedQuery{query: &query.MetricQuery{}}, time.Unix(1_700_000_000, 0)
			for i, r := range test.requests {
				var names []string
				for pod := range r.n {
					names = append(names, fmt.Sprint("pod-", r.first+pod))
				}
				now = now.Add(r.after)
				if got := s.count(names, false, test.series, interval, now); got != r.shared {
					t.Fatalf("request %d: it is shared: %t", i, got)
				}
			}
		})
	}
}

// A watch has the query for all objects from the start, which stays the same while pods come and go.
func TestWatchesShareQueries(t *testing.T) {
	many := seriesOf("requests", "namespace", "pod")
	many.Count = 1000
	c := newCatalog(t, backend([]v1alpha1.MetricRule{{SeriesQuery: "requests", Resources: namespacePod}}, nil), many)
	expression := func(watch bool) string {
		r := pods("shop", "requests", "a")
		r.Watch = watch
		mq, _, err := c.ObjectQuery(r)
		if err != nil {
			t.Fatal(err)
		}
		return mq.Query.Expression
	}
	want := []string{`sum(requests{namespace="shop",pod="a"}) by (pod)`, `sum(requests{namespace="shop",pod!=""}) by (pod)`}
	if diff := cmp.Diff(want, []string{expression(false), expression(true)}); diff != "" {
		t.Error(diff)
	}
}
