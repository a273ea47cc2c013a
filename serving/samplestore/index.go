// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// namespace holds the entries of one namespace, or all nodes.
type namespace struct {
	entries map[string]*entry
	// index holds the entries sorted by name; nil after one came or went. The
	// first reader then brings it up to date, so that a burst of changes costs
	// one merge, and a single change no sort of all that stayed.
	index atomic.Pointer[[]*entry]

	// mending lets one reader do that; writers are kept out by Table.mu.
	mending sync.Mutex
	// sorted is the index as it was before, added holds what has come since.
	sorted, added []*entry
}

// add takes in a new entry. The caller holds Table.mu for writing, as for forget.
func (ns *namespace) add(e *entry) {
	ns.entries[e.key.Name] = e
	ns.added = append(ns.added, e)
	ns.index.Store(nil)
}

func (ns *namespace) forget(e *entry) {
	delete(ns.entries, e.key.Name)
	e.forgotten = true
	ns.index.Store(nil)
}

// current returns the index. The slice is shared and must not be changed. The
// caller holds Table.mu for reading.
func (ns *namespace) current() []*entry {
	if index := ns.index.Load(); index != nil {
		return *index
	}
	ns.mending.Lock()
	defer ns.mending.Unlock()
	if index := ns.index.Load(); index != nil {
		return *index
	}
	index := merge(ns.sorted, ns.added, len(ns.entries))
	ns.sorted, ns.added = index, nil
	ns.index.Store(&index)
	return index
}

// merge returns the entries of both, sorted, without those that were forgotten.
// All are of one namespace, and those in sorted are in order; of one name at most one was not forgotten.
func merge(sorted, added []*entry, size int) []*entry {
	slices.SortFunc(added, func(a, b *entry) int { return strings.Compare(a.key.Name, b.key.Name) })
	merged := make([]*entry, 0, size)
	take := func(e *entry) {
		if !e.forgotten {
			merged = append(merged, e)
		}
	}
	for _, e := range sorted {
		for len(added) > 0 && added[0].key.Name <= e.key.Name {
			take(added[0])
			added = added[1:]
		}
		take(e)
	}
	for _, e := range added {
		take(e)
	}
	return merged
}

// lookup finds the entry of a key, or nil. The caller holds t.mu.
func (t *Table) lookup(key Key) *entry {
	ns := t.namespaces[key.Namespace]
	if ns == nil {
		return nil
	}
	return ns.entries[key.Name]
}

// ensure finds or makes the entry of a key. The caller holds t.mu for writing.
func (t *Table) ensure(key Key) *entry {
	ns := t.namespaces[key.Namespace]
	if ns == nil {
		ns = &namespace{entries: map[string]*entry{}}
		t.namespaces[key.Namespace] = ns
		t.order.Store(nil)
	}
	e := ns.entries[key.Name]
	if e == nil {
		e = &entry{key: key}
		ns.add(e)
		t.entries++
	}
	return e
}

// sortedNamespaces returns the namespaces' names in order. The slice is shared
// and must not be changed. It is rebuilt by the first reader after a change, so
// that a burst of new namespaces costs one sort.
func (t *Table) sortedNamespaces() []string {
	if names := t.order.Load(); names != nil {
		return *names
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	names := slices.Sorted(maps.Keys(t.namespaces))
	t.order.Store(&names)
	return names
}

// sortedEntries returns a namespace's entries in order. The slice is shared and
// must not be changed.
func (t *Table) sortedEntries(name string) []*entry {
	t.mu.RLock()
	defer t.mu.RUnlock()
	ns := t.namespaces[name]
	if ns == nil {
		return nil
	}
	return ns.current()
}

// Namespaces returns the names of the namespaces that have had objects lately, in order.
// The slice is shared and must not be changed.
func (t *Table) Namespaces() []string { return t.sortedNamespaces() }
