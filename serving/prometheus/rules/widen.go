// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/lru"

	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

const (
	// maxWideSeries is the most series that a metric may have at its source for a
	// question to be asked for all objects of a namespace. Beyond it the objects are
	// named, so that an autoscaler of three pods does not cost a query over all series
	// of a very large namespace.
	maxWideSeries = 20000
	// maxWideReadings and maxWideBytes bound what is remembered: the keys are what
	// clients write. A selector of more than maxWideSelector bytes is hardly an
	// autoscaler's, and is not remembered at all.
	maxWideReadings = 20000
	maxWideBytes    = 16 << 20
	maxWideSelector = 1 << 10
)

// Two names that no object has, for the proof.
const (
	someObject    = "some-object-0-metricsbackend"
	anotherObject = "another-object-1-metricsbackend"
)

// widen returns a metric query for all objects of the namespace, or all there are, if it
// provably gives each object what asking for that object gives. N autoscalers with
// different selectors then ask one question. nil where there is no such proof.
func (b *binding) widen(namespace string, series labels.Selector) *query.MetricQuery {
	one, err := b.metricQuery(namespace, []string{someObject}, series)
	if err != nil {
		return nil
	}
	two, err := b.metricQuery(namespace, []string{someObject, anotherObject}, series)
	if err != nil {
		return nil
	}
	wide, err := b.metricQuery(namespace, nil, series)
	if err != nil {
		return nil
	}
	if !promql.Separable(promql.Rendering{
		Label: b.objectLabel, First: someObject, Second: anotherObject,
		One: one.Query.Expression, Two: two.Query.Expression, All: wide.Query.Expression,
	}) {
		return nil
	}
	return &wide
}

// wideKey is what a wide metric query depends on.
type wideKey struct {
	binding   *binding
	namespace string
	series    string
}

// wideReadings remembers the proofs that were used last, so that a request costs a
// look-up. The zero value is ready.
type wideReadings struct {
	mu    sync.Mutex
	known *lru.Cache
	// bytes of what is known.
	bytes int
}

// get returns a metric query, nil where there is none, and whether that is known.
func (w *wideReadings) get(k wideKey) (*query.MetricQuery, bool) {
	if len(k.series) > maxWideSelector {
		return nil, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known == nil {
		return nil, false
	}
	r, known := w.known.Get(k)
	if !known {
		return nil, false
	}
	return r.(*query.MetricQuery), true //nolint:forcetypeassert // put adds no others
}

func (w *wideReadings) put(k wideKey, r *query.MetricQuery) {
	size := wideSize(k, r)
	if len(k.series) > maxWideSelector || size > maxWideBytes/10 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known == nil {
		w.known = lru.NewWithEvictionFunc(maxWideReadings, func(k lru.Key, r any) {
			w.bytes -= wideSize(k.(wideKey), r.(*query.MetricQuery)) //nolint:forcetypeassert // as above
		})
	}
	w.known.Remove(k) // of a request that came at the same time
	w.known.Add(k, r)
	w.bytes += size
	for w.bytes > maxWideBytes {
		w.known.RemoveOldest()
	}
}

// wideSize is what an entry takes, about.
func wideSize(k wideKey, r *query.MetricQuery) int {
	const fixed = 512 // the entry itself, and the mq
	size := fixed + len(k.namespace) + len(k.series)
	if r != nil {
		size += len(r.Query.Expression)
	}
	return size
}

func (w *wideReadings) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known, w.bytes = nil, 0
}
