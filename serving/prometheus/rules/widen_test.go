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

// What is remembered is bounded in bytes, whatever selectors clients write.
func TestWideReadingsAreBounded(t *testing.T) {
	mq := func(length int) *query.MetricQuery {
		return &query.MetricQuery{Query: query.Query{Expression: strings.Repeat("x", length)}}
	}
	var w wideReadings
	key := func(i int) wideKey { return wideKey{namespace: "shop", series: fmt.Sprintf("a=%d", i)} }
	for i := range 2 * maxWideReadings {
		w.put(key(i), mq(100))
	}
	if n := w.known.Len(); n > maxWideReadings {
		t.Errorf("%d readings are remembered", n)
	}
	const long = 64 << 10
	for i := range 1000 {
		w.put(key(i), mq(long))
	}
	sum := 0
	for i := range 2 * maxWideReadings {
		if r, known := w.get(key(i)); known {
			sum += len(r.Query.Expression)
		}
	}
	if sum > maxWideBytes || sum < maxWideBytes/2 || w.bytes > maxWideBytes || w.bytes < sum {
		t.Errorf("%d bytes are remembered, counted as %d", sum, w.bytes)
	}
	if _, known := w.get(key(999)); !known {
		t.Error("the newest mq was not remembered")
	}
	for range 3 {
		w.put(key(999), nil)
	}
	if r, known := w.get(key(999)); !known || r != nil {
		t.Errorf("that there is none was not remembered: %v", r)
	}
	huge := wideKey{series: strings.Repeat("s", maxWideSelector+1)}
	w.put(huge, mq(1))
	if _, known := w.get(huge); known {
		t.Error("a long selector was remembered")
	}
	w.forget()
	if _, known := w.get(key(999)); known || w.bytes != 0 {
		t.Error("it was not forgotten")
	}
	w.put(key(1), mq(1))
	if _, known := w.get(key(1)); !known {
		t.Error("nothing is remembered any more")
	}
}

// One who reads with ever other selectors does not take from others what they use.
func TestWideReadingsKeepWhatIsUsed(t *testing.T) {
	c := newCatalogue(t, backend([]v1alpha1.MetricRule{{SeriesQuery: "requests", Resources: namespacePod}}, nil), seriesOf("requests", "namespace", "pod"))
	ask := func(series string) {
		t.Helper()
		r := pods("shop", "requests", "a")
		r.Series = selector(t, series)
		if _, _, err := c.ObjectQuery(r); err != nil {
			t.Fatal(err)
		}
	}
	ask("verb=GET")
	values := make([]string, maxWideSelector)
	for i := range values {
		values[i] = fmt.Sprint("v", i)
	}
	ask("verb in (" + strings.Join(values, ",") + ")")
	if n := c.wide.known.Len(); n != 1 {
		t.Errorf("%d readings are remembered, want that of the short selector", n)
	}
	var w wideReadings
	used := wideKey{namespace: "shop"}
	w.put(used, nil)
	for i := range maxWideReadings + 10 {
		w.put(wideKey{series: fmt.Sprint(i)}, nil)
		if _, known := w.get(used); !known {
			t.Fatalf("after %d others it is forgotten", i)
		}
	}
}
