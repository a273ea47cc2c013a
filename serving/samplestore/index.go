// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"maps"
	"slices"
	"strings"
)

// namespace holds the entries of one namespace, or all nodes.
type namespace struct {
	name    string
	entries map[string]*entry
	// index holds the entries sorted by name, and is reset when one is added or
	// removed. So a burst of changes costs one merge, and a single change does not
	// sort the rest again.
	index lazy[[]*entry]
	// sorted is the previous index, added the entries that are not in it.
	sorted, added []*entry
}

// add adds a new entry. The caller holds Collection.mu for writing, as for remove.
func (ns *namespace) add(e *entry) {
	ns.entries[e.key.Name] = e
	ns.added = append(ns.added, e)
	ns.index.reset()
}

func (ns *namespace) remove(e *entry) {
	delete(ns.entries, e.key.Name)
	e.removed = true
	ns.index.reset()
}

// sortedEntries returns the entries sorted by name. The slice is shared and must
// not be changed. The caller holds Collection.mu for reading.
func (ns *namespace) sortedEntries() []*entry {
	return ns.index.mustGet(func() []*entry {
		ns.sorted, ns.added = merge(ns.sorted, ns.added, len(ns.entries)), nil
		return ns.sorted
	})
}

// merge returns the entries of both slices sorted by name, without the removed
// ones. All are of one namespace; sorted is in order and added need not be.
func merge(sorted, added []*entry, size int) []*entry {
	slices.SortFunc(added, func(a, b *entry) int { return strings.Compare(a.key.Name, b.key.Name) })
	merged := make([]*entry, 0, size)
	keep := func(e *entry) {
		if !e.removed {
			merged = append(merged, e)
		}
	}
	for _, e := range sorted {
		for len(added) > 0 && added[0].key.Name <= e.key.Name {
			keep(added[0])
			added = added[1:]
		}
		keep(e)
	}
	for _, e := range added {
		keep(e)
	}
	return merged
}

// lookup returns the entry of a key, or nil. The caller holds t.mu.
func (t *Collection) lookup(key Key) *entry {
	ns := t.namespaces[key.Namespace]
	if ns == nil {
		return nil
	}
	return ns.entries[key.Name]
}

// ensure returns the entry of a key, adding it if needed. The caller holds t.mu
// for writing.
func (t *Collection) ensure(key Key) *entry {
	ns := t.namespaces[key.Namespace]
	if ns == nil {
		ns = &namespace{name: key.Namespace, entries: map[string]*entry{}}
		t.namespaces[key.Namespace] = ns
		t.names.reset()
	}
	e := ns.entries[key.Name]
	if e == nil {
		e = &entry{key: Key{Namespace: ns.name, Name: key.Name}}
		ns.add(e)
		t.entries++
	}
	return e
}

// Namespaces returns the names of the namespaces that have entries, sorted. The
// slice is shared and must not be changed. The first reader after a change sorts,
// so that a burst of new namespaces costs one sort.
func (t *Collection) Namespaces() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.names.mustGet(func() []string { return slices.Sorted(maps.Keys(t.namespaces)) })
}

// sortedEntries returns a namespace's entries sorted by name. The slice is shared
// and must not be changed.
func (t *Collection) sortedEntries(name string) []*entry {
	t.mu.RLock()
	defer t.mu.RUnlock()
	ns := t.namespaces[name]
	if ns == nil {
		return nil
	}
	return ns.sortedEntries()
}

// Len returns the number of keys in a namespace, or of all if it is empty. No list
// has more objects.
func (t *Collection) Len(namespace string) int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.size(namespace)
}

// size returns the number of entries in a namespace, or of all if it is empty. The
// caller holds t.mu.
func (t *Collection) size(namespace string) int {
	if namespace == "" {
		return t.entries
	}
	if ns := t.namespaces[namespace]; ns != nil {
		return len(ns.entries)
	}
	return 0
}
