// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
		// after is how long after the one before it is, and names the objects that it is for.
		after  time.Duration
		names  int
		shared bool
	}
	repeat := func(n int, of request) (all []request) {
		for range n {
			all = append(all, of)
		}
		return all
	}
	tests := map[string]struct {
		series   int
		requests []request
	}{
		"few of many":                    {1000, repeat(40, request{interval, 3, false})},
		"few of few":                     {30, repeat(3, request{interval, 3, true})},
		"one autoscaler of a large part": {1000, repeat(3, request{interval, 100, true})},
		"many autoscalers":               {1000, append(repeat(4, request{time.Second, 3, false}), repeat(100, request{time.Second, 3, true})...)},
		"slowly many":                    {1000, repeat(100, request{4 * time.Second, 3, false})},
		"a large part together":          {1000, []request{{0, 40, false}, {time.Second, 40, false}, {time.Second, 40, true}}},
		"not in the next interval":       {1000, []request{{0, 40, false}, {time.Second, 40, false}, {interval, 40, false}}},
		"it stays so":                    {1000, append([]request{{0, 100, true}}, append(repeat(39, request{interval, 3, true}), repeat(9, request{interval, 3, false})...)...)},
		"too many series":                {20_001, repeat(100, request{time.Second, 3000, false})},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, now := sharedQuery{query: &query.MetricQuery{}}, time.Unix(1_700_000_000, 0)
			for i, r := range test.requests {
				now = now.Add(r.after)
				if got := s.wanted(r.names, test.series, interval, now); got != r.shared {
					t.Fatalf("request %d: it is shared: %t", i, got)
				}
			}
		})
	}
}
