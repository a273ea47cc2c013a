// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import "slices"

// sweepChunk is the number of entries checked under one lock, so that a sweep of
// a large collection does not block readers and writers for long.
const sweepChunk = 256

// Sweep removes points that are too old to be served, entries without metadata
// and point, and unused label indexes. It returns the number of remaining points.
func (t *Collection) Sweep() int {
	t.dropUnusedIndexes()
	oldest, remaining, missing := t.oldest(), 0, 0
	for _, name := range t.Namespaces() {
		for chunk := range slices.Chunk(t.sortedEntries(name), sweepChunk) {
			fresh, without, expired := t.count(chunk, oldest)
			remaining += fresh
			missing += without
			if expired {
				t.removeExpired(name, chunk, oldest)
			}
		}
	}
	t.withoutPoint.Store(int64(missing))
	t.points.Store(int64(remaining))
	return remaining
}

// Swept returns what the last Sweep found: the number of points, and of keys with metadata only.
func (t *Collection) Swept() (points, without int64) { return t.points.Load(), t.withoutPoint.Load() }

// count returns the number of points that are not too old, of entries with metadata only, and
// whether there is anything to remove.
func (t *Collection) count(entries []*entry, oldest Time) (fresh, without int, expired bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, e := range entries {
		switch {
		case e.point != nil && e.point.Time >= oldest:
			fresh++
			continue
		case e.meta != nil:
			without++
		}
		expired = expired || e.point != nil || e.removable(oldest)
	}
	return fresh, without, expired
}

// removeExpired removes expired points and entries of a namespace.
func (t *Collection) removeExpired(name string, entries []*entry, oldest Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ns := t.namespaces[name]
	if ns == nil {
		return
	}
	for _, e := range entries {
		if e.point != nil && e.point.Time < oldest {
			e.point = nil
			e.join()
		}
		if e.removable(oldest) && ns.entries[e.key.Name] == e {
			ns.remove(e)
			t.entries--
		}
	}
	if len(ns.entries) == 0 {
		delete(t.namespaces, name)
		t.names.reset()
	}
}

// removable reports whether the entry has no metadata, no point and no barrier in
// force: a kubelet may report a pod for a while after its end, and the entry is
// kept to reject these reports. The caller holds t.mu.
func (e *entry) removable(oldest Time) bool {
	return e.point == nil && e.meta == nil && (e.retired == nil || e.retired.at < oldest)
}
