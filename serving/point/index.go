// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package point

import (
	"maps"
	"slices"
)

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
		ns.entries[key.Name] = e
		ns.index.Store(nil)
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

// sortedEntries returns a namespace's entries in order, as sortedNamespaces.
func (t *Table) sortedEntries(name string) []*entry {
	t.mu.RLock()
	defer t.mu.RUnlock()
	ns := t.namespaces[name]
	if ns == nil {
		return nil
	}
	if index := ns.index.Load(); index != nil {
		return *index
	}
	index := slices.SortedFunc(maps.Values(ns.entries), func(a, b *entry) int { return a.key.Compare(b.key) })
	ns.index.Store(&index)
	return index
}
