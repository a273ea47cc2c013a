// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"slices"
	"time"
)

// sweepChunk is how many entries are looked at under one lock: a sweep of a
// large table must not hold up readers and writers for its whole time.
const sweepChunk = 256

// Sweep forgets points that are too old to be served, and keys of which neither
// metadata nor a point is left. It returns the number of points still held.
func (t *Table) Sweep() int {
	t.dropUnused()
	horizon, held := t.horizon(), 0
	for _, name := range t.sortedNamespaces() {
		for chunk := range slices.Chunk(t.sortedEntries(name), sweepChunk) {
			young, stale := t.inspect(chunk, horizon)
			held += young
			if stale {
				t.discard(name, chunk, horizon)
			}
		}
	}
	return held
}

// inspect counts the points that are young enough, and says whether anything is
// to be discarded.
func (t *Table) inspect(entries []*entry, horizon time.Time) (young int, stale bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, e := range entries {
		switch {
		case e.point != nil && !e.point.Time.Before(horizon):
			young++
		case e.point != nil || e.ended(horizon):
			stale = true
		}
	}
	return young, stale
}

// discard drops what is too old among the entries of a namespace.
func (t *Table) discard(name string, entries []*entry, horizon time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ns := t.namespaces[name]
	if ns == nil {
		return
	}
	for _, e := range entries {
		if e.point != nil && e.point.Time.Before(horizon) {
			e.point = nil
			e.join()
		}
		if e.ended(horizon) && ns.entries[e.key.Name] == e {
			ns.forget(e)
			t.entries--
		}
	}
	if len(ns.entries) == 0 {
		delete(t.namespaces, name)
		t.order.Store(nil)
	}
}

// ended says whether nothing is left that the entry is needed for. A kubelet may
// go on reporting a pod for a while after its end: until then the entry stays,
// so that late reports are recognised. The caller holds t.mu.
func (e *entry) ended(horizon time.Time) bool {
	return e.point == nil && e.meta == nil && e.retired.Before(horizon)
}
