// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

const (
	// scanned is how many entries are gone through without an index: it takes
	// less than a tenth of a millisecond, and small clusters have none to keep.
	scanned = 512
	// maxIndexed is how many labels are indexed at a time. Clients choose them,
	// and an index of a label that all of 30,000 pods have takes a megabyte.
	maxIndexed = 8
	// indexKept is how long an index stays that nobody asks for.
	indexKept = time.Hour
)

// Label is one that an object has.
type Label struct{ Name, Value string }

// RequiredLabels returns labels that an object must have for a selector to match.
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

// labelIndex finds entries by the value of one label. It is read and written
// under Table.mu.
type labelIndex struct {
	values map[string]*labelled
	// used is when it was last asked for, in nanoseconds since 1970.
	used atomic.Int64
}

// labelled are the entries of one value.
type labelled struct {
	entries map[*entry]struct{}
	// sorted holds them ordered by key; nil after one came or went.
	sorted atomic.Pointer[[]*entry]
	// mending lets one reader sort; writers are kept out by Table.mu.
	mending sync.Mutex
}

// Select is List for whoever looks for objects that have labels: it yields those
// that have all of them, and may or may not yield others. Where one of the labels
// is rare it costs as much as there are with it, and not as many as there are.
func (t *Table) Select(namespace string, required []Label, after Key) iter.Seq[*Object] {
	entries, found := t.narrowest(namespace, required)
	if !found {
		return t.List(namespace, after)
	}
	start := after
	if start.Namespace < namespace {
		start = Key{Namespace: namespace}
	}
	return func(yield func(*Object) bool) {
		horizon := t.horizon()
		i, found := slices.BinarySearchFunc(entries, start, func(e *entry, k Key) int { return e.key.Compare(k) })
		if found && start == after {
			i++
		}
		for _, e := range entries[i:] {
			if namespace != "" && e.key.Namespace != namespace {
				return
			}
			o := e.object.Load()
			if o == nil || o.Point.Time.Before(horizon) {
				continue
			}
			if !yield(o) {
				return
			}
		}
	}
}

// narrowest returns the entries of the rarest of the labels, ordered by key. It
// returns false where going through the namespace is as good.
func (t *Table) narrowest(namespace string, required []Label) ([]*entry, bool) {
	if len(required) == 0 {
		return nil, false
	}
	t.mu.RLock()
	size := t.size(namespace)
	missing := size > scanned && len(t.labels) < maxIndexed && slices.ContainsFunc(required, t.unindexed)
	t.mu.RUnlock()
	if size <= scanned {
		return nil, false
	}
	if missing {
		t.indexLabels(required)
	}

	t.mu.RLock()
	defer t.mu.RUnlock()
	var best *labelled
	indexed := false
	for _, l := range required {
		index := t.labels[l.Name]
		if index == nil {
			continue
		}
		indexed = true
		index.used.Store(t.clock.Now().UnixNano())
		of := index.values[l.Value]
		if of == nil {
			return nil, true // nothing has it
		}
		if best == nil || len(of.entries) < len(best.entries) {
			best = of
		}
	}
	if !indexed || len(best.entries) > size/4 {
		return nil, false
	}
	return best.current(), true
}

// size is how many entries a namespace has, or all. The caller holds t.mu.
func (t *Table) size(namespace string) int {
	if namespace == "" {
		return t.entries
	}
	if ns := t.namespaces[namespace]; ns != nil {
		return len(ns.entries)
	}
	return 0
}

func (t *Table) unindexed(l Label) bool { return t.labels[l.Name] == nil }

// indexLabels makes the indexes that are missing, as long as there is room.
func (t *Table) indexLabels(required []Label) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range required {
		if t.labels[l.Name] != nil || len(t.labels) >= maxIndexed {
			continue
		}
		index := &labelIndex{values: map[string]*labelled{}}
		for _, ns := range t.namespaces {
			for _, e := range ns.entries {
				if e.meta != nil {
					index.move(l.Name, e, nil, e.meta)
				}
			}
		}
		if t.labels == nil {
			t.labels = map[string]*labelIndex{}
		}
		t.labels[l.Name] = index
	}
}

// relabel brings the indexes up to date with new metadata, which is nil when the
// object is gone. The caller holds t.mu for writing.
func (t *Table) relabel(e *entry, meta *Meta) {
	for name, index := range t.labels {
		index.move(name, e, e.meta, meta)
	}
}

// move files an entry under the value that it has now.
func (x *labelIndex) move(name string, e *entry, before, now *Meta) {
	old, had := before.label(name)
	value, has := now.label(name)
	if had == has && old == value {
		return
	}
	if of := x.values[old]; had && of != nil {
		delete(of.entries, e)
		of.sorted.Store(nil)
		if len(of.entries) == 0 {
			delete(x.values, old)
		}
	}
	if has {
		of := x.values[value]
		if of == nil {
			of = &labelled{entries: map[*entry]struct{}{}}
			x.values[value] = of
		}
		of.entries[e] = struct{}{}
		of.sorted.Store(nil)
	}
}

func (m *Meta) label(name string) (value string, has bool) {
	if m == nil {
		return "", false
	}
	value, has = m.Labels[name]
	return value, has
}

// current returns the entries ordered by key. The slice is shared and must not be
// changed. The caller holds Table.mu for reading.
func (l *labelled) current() []*entry {
	if sorted := l.sorted.Load(); sorted != nil {
		return *sorted
	}
	l.mending.Lock()
	defer l.mending.Unlock()
	if sorted := l.sorted.Load(); sorted != nil {
		return *sorted
	}
	sorted := make([]*entry, 0, len(l.entries))
	for e := range l.entries {
		sorted = append(sorted, e)
	}
	slices.SortFunc(sorted, func(a, b *entry) int { return a.key.Compare(b.key) })
	l.sorted.Store(&sorted)
	return sorted
}

// dropUnused forgets indexes that nobody has asked for in a while.
func (t *Table) dropUnused() {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.clock.Now().Add(-indexKept).UnixNano()
	for name, index := range t.labels {
		if index.used.Load() < before {
			delete(t.labels, name)
		}
	}
}
