// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"iter"
	"maps"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

const (
	// maxScan is the largest number of entries that is scanned without an index:
	// that takes less than 0.1 ms, and small clusters need no indexes.
	maxScan = 512
	// maxIndexes bounds the indexed labels. Clients choose them, and the index of
	// a label on 30,000 pods takes a megabyte.
	maxIndexes = 8
	// indexTTL is how long an unused index is kept.
	indexTTL = time.Hour
)

// Label is a label's name and value.
type Label struct{ Name, Value string }

// RequiredLabels returns labels that every object selected by s has.
func RequiredLabels(s labels.Selector) []Label {
	if s == nil {
		return nil
	}
	requirements, selectable := s.Requirements()
	if !selectable {
		return nil
	}
	var required []Label
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if values := r.ValuesUnsorted(); len(values) == 1 {
				required = append(required, Label{r.Key(), values[0]})
			}
		}
	}
	return required
}

// labelIndex finds entries by the value of one label. It is guarded by Collection.mu.
type labelIndex struct {
	values map[string]*entrySet
	// lastUsed is in nanoseconds since 1970.
	lastUsed atomic.Int64
}

// entrySet holds the entries with one value of a label.
type entrySet struct {
	entries map[*entry]struct{}
	// sorted holds them ordered by key, and is reset when one is added or removed.
	sorted lazy[[]*entry]
}

// Select is List for selectors: it yields all objects with the required labels,
// and may yield others, so the caller still filters. If one of the labels is
// rare, it costs as much as there are objects with that label.
func (t *Collection) Select(namespace string, required []Label, after Key) iter.Seq[*Object] {
	entries, found := t.smallestSet(namespace, required)
	if !found {
		return t.List(namespace, after)
	}
	if after.Namespace < namespace {
		after = Key{Namespace: namespace}
	}
	if namespace != "" {
		entries = entries[:sort.Search(len(entries), func(i int) bool { return entries[i].key.Namespace > namespace })]
	}
	return func(yield func(*Object) bool) { yieldAfter(after, entries, t.oldest(), yield) }
}

// Names returns the sorted names of the objects in a namespace that kube-apiserver
// has and the selector matches, whether or not they have points.
func (t *Collection) Names(namespace string, selector labels.Selector) []string {
	entries, found := t.smallestSet(namespace, RequiredLabels(selector))
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := slices.Values(entries)
	if ns := t.namespaces[namespace]; !found && ns != nil {
		all = maps.Values(ns.entries)
	}
	names := []string{}
	for e := range all {
		if e.meta != nil && e.key.Namespace == namespace && selector.Matches(labels.Set(e.meta.Labels)) {
			names = append(names, e.key.Name)
		}
	}
	slices.Sort(names)
	return names
}

// smallestSet returns the entries of the rarest of the labels, ordered by key. It
// returns false if scanning the namespace is as good. It creates missing indexes.
func (t *Collection) smallestSet(namespace string, required []Label) ([]*entry, bool) {
	if len(required) == 0 {
		return nil, false
	}
	t.mu.RLock()
	size := t.size(namespace)
	missing := size > maxScan && len(t.labels) < maxIndexes &&
		slices.ContainsFunc(required, func(l Label) bool { return t.labels[l.Name] == nil })
	t.mu.RUnlock()
	if size <= maxScan {
		return nil, false
	}
	if missing {
		t.indexLabels(required)
	}

	t.mu.RLock()
	defer t.mu.RUnlock()
	var best *entrySet
	indexed := false
	for _, l := range required {
		index := t.labels[l.Name]
		if index == nil {
			continue
		}
		indexed = true
		index.lastUsed.Store(t.clock.Now().UnixNano())
		set := index.values[l.Value]
		if set == nil {
			return nil, true // no object has it
		}
		if best == nil || len(set.entries) < len(best.entries) {
			best = set
		}
	}
	if !indexed || len(best.entries) > size/4 {
		return nil, false
	}
	return best.sortedEntries(), true
}

// indexLabels creates missing indexes, up to maxIndexes.
func (t *Collection) indexLabels(required []Label) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range required {
		if t.labels[l.Name] != nil || len(t.labels) >= maxIndexes {
			continue
		}
		index := &labelIndex{values: map[string]*entrySet{}}
		for _, ns := range t.namespaces {
			for _, e := range ns.entries {
				if e.meta != nil {
					index.update(l.Name, e, nil, e.meta)
				}
			}
		}
		if t.labels == nil {
			t.labels = map[string]*labelIndex{}
		}
		t.labels[l.Name] = index
	}
}

// updateIndexes moves an entry in all label indexes to where meta belongs, which
// is nil if the object is gone. The caller holds t.mu for writing.
func (t *Collection) updateIndexes(e *entry, meta *Meta) {
	for name, index := range t.labels {
		index.update(name, e, e.meta, meta)
	}
}

// update moves an entry from the set of its old value to that of its new one.
func (x *labelIndex) update(name string, e *entry, before, now *Meta) {
	old, had := before.label(name)
	value, has := now.label(name)
	if had == has && old == value {
		return
	}
	if set := x.values[old]; had && set != nil {
		delete(set.entries, e)
		set.sorted.reset()
		if len(set.entries) == 0 {
			delete(x.values, old)
		}
	}
	if has {
		set := x.values[value]
		if set == nil {
			set = &entrySet{entries: map[*entry]struct{}{}}
			x.values[value] = set
		}
		set.entries[e] = struct{}{}
		set.sorted.reset()
	}
}

func (m *Meta) label(name string) (value string, has bool) {
	if m == nil {
		return "", false
	}
	value, has = m.Labels[name]
	return value, has
}

// sortedEntries returns the entries ordered by key. The slice is shared and must
// not be changed. The caller holds Collection.mu for reading.
func (s *entrySet) sortedEntries() []*entry {
	return s.sorted.mustGet(func() []*entry {
		sorted := slices.AppendSeq(make([]*entry, 0, len(s.entries)), maps.Keys(s.entries))
		slices.SortFunc(sorted, func(a, b *entry) int { return a.key.Compare(b.key) })
		return sorted
	})
}

// dropUnusedIndexes removes indexes that were not used for indexTTL.
func (t *Collection) dropUnusedIndexes() {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.clock.Now().Add(-indexTTL).UnixNano()
	maps.DeleteFunc(t.labels, func(_ string, index *labelIndex) bool { return index.lastUsed.Load() < before })
}
