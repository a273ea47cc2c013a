// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// historyLength is the number of samples of a row's history: ten minutes at one each 15 s.
const historyLength = 40

// row is the newest sample with its history.
type row struct {
	sample
	// cpus and memories are the history, newest last.
	cpus, memories []int64
}

// table holds all rows.
type table struct {
	rows map[id]*row
	// objects are the rows of each object.
	objects map[string][]id
}

func newTable() *table { return &table{rows: map[id]*row{}, objects: map[string][]id{}} }

// apply updates the rows of an object.
func (t *table) apply(c change) {
	gone := t.objects[c.object]
	delete(t.objects, c.object)
	for _, s := range c.samples {
		t.objects[c.object] = append(t.objects[c.object], s.id)
		gone = slices.DeleteFunc(gone, func(other id) bool { return other == s.id })
		r := t.rows[s.id]
		if r == nil {
			r = &row{}
			t.rows[s.id] = r
		}
		r.sample = s
		r.cpus, r.memories = appendHistory(r.cpus, s.cpu), appendHistory(r.memories, s.memory)
	}
	for _, other := range gone {
		delete(t.rows, other)
	}
}

func appendHistory(values []int64, value int64) []int64 {
	values = append(values, value)
	return values[max(len(values)-historyLength, 0):]
}

// missing returns the names that have no rows, sorted.
func (t *table) missing(available map[string]usage) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(available)), func(name string) bool {
		_, has := t.objects[name]
		return has
	})
}

// newest returns the time of the newest sample, or zero.
func (t *table) newest() time.Time {
	var newest time.Time
	for _, r := range t.rows {
		if r.at.After(newest) {
			newest = r.at
		}
	}
	return newest
}

// order is the sort order of rows.
type order string

const (
	byName   order = "name"
	byCPU    order = "cpu"
	byMemory order = "memory"
)

// sorted returns the rows, by name or with the highest usage first.
func (t *table) sorted(by order) []*row {
	return slices.SortedFunc(maps.Values(t.rows), func(a, b *row) int {
		usage := 0
		switch by {
		case byCPU:
			usage = cmp.Compare(b.cpu, a.cpu)
		case byMemory:
			usage = cmp.Compare(b.memory, a.memory)
		}
		return cmp.Or(usage, cmp.Compare(a.id.namespace, b.id.namespace), cmp.Compare(a.id.pod, b.id.pod), cmp.Compare(a.id.name, b.id.name))
	})
}
