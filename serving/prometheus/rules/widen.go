// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

const (
	// maxWideSeries is the most series that a metric may have at its source for a
	// question to be asked for all objects of a namespace. Beyond it the objects are
	// named, so that an autoscaler of three pods does not cost a query over all series
	// of a very large namespace.
	maxWideSeries = 20000
	// maxWideReadings bounds what is remembered.
	maxWideReadings = 20000
)

// Two names that no object has, for the proof.
const (
	someObject    = "some-object-0-metricsbackend"
	anotherObject = "another-object-1-metricsbackend"
)

// widen returns a reading for all objects of the namespace, or all there are, if it
// provably gives each object what asking for that object gives. N autoscalers with
// different selectors then ask one question. nil where there is no such proof.
func (b *binding) widen(namespace string, series labels.Selector) *query.Reading {
	one, err := b.reading(namespace, []string{someObject}, series)
	if err != nil {
		return nil
	}
	two, err := b.reading(namespace, []string{someObject, anotherObject}, series)
	if err != nil {
		return nil
	}
	wide, err := b.reading(namespace, nil, series)
	if err != nil {
		return nil
	}
	if !promql.Separable(promql.Rendering{
		Label: b.objectLabel, First: someObject, Second: anotherObject,
		One: one.Question.Expression, Two: two.Question.Expression, All: wide.Question.Expression,
	}) {
		return nil
	}
	return &wide
}

// wideKey is what a wide reading depends on.
type wideKey struct {
	binding   *binding
	namespace string
	series    string
}

// wideReadings remembers proofs, so that a request costs a look-up.
type wideReadings struct {
	mu    sync.RWMutex
	known map[wideKey]*query.Reading
}

// get returns a reading, nil where there is none, and whether that is known.
func (w *wideReadings) get(k wideKey) (*query.Reading, bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	r, known := w.known[k]
	return r, known
}

func (w *wideReadings) put(k wideKey, r *query.Reading) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known == nil || len(w.known) >= maxWideReadings {
		w.known = map[wideKey]*query.Reading{}
	}
	w.known[k] = r
}

func (w *wideReadings) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known = nil
}
