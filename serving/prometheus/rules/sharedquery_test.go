// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// The cached queries are bounded in bytes, whatever selectors clients write.
func TestSharedQueriesAreBounded(t *testing.T) {
	mq := &query.MetricQuery{Query: query.Query{Expression: strings.Repeat("x", 64<<10)}}
	shared := newSharedQueries()
	key := func(i int) sharedKey { return sharedKey{namespace: "shop", series: fmt.Sprintf("a=%d", i)} }
	for i := range 1000 {
		shared.Add(key(i), mq)
	}
	sum := 0
	for i := range 1000 {
		if q, cached := shared.Get(key(i)); cached {
			sum += len(q.Query.Expression)
		}
	}
	if sum > maxSharedBytes || sum < maxSharedBytes/2 {
		t.Errorf("%d bytes are cached", sum)
	}
	shared.Add(key(999), nil)
	if q, cached := shared.Get(key(999)); !cached || q != nil {
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
	w.Add(used, nil)
	for i := range maxSharedQueries + 10 {
		w.Add(sharedKey{series: fmt.Sprint(i)}, nil)
		if _, cached := w.Get(used); !cached {
			t.Fatalf("after %d others it is evicted", i)
		}
	}
}
