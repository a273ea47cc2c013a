// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agenda keeps what is due at some time, the earliest first.
package agenda

import (
	"container/heap"
	"iter"
	"slices"
	"time"
)

// Place is the place of an item in an Agenda. Items embed it; its zero value is that of
// an item which is in none.
type Place struct {
	due time.Time
	// position counts from 1.
	position int
}

// Due is when the item is or was due, also after it was taken out.
func (p *Place) Due() time.Time { return p.due }

// Listed tells whether the item is in an agenda.
func (p *Place) Listed() bool { return p.position > 0 }

func (p *Place) place() *Place { return p }

// Item is a pointer to what embeds a Place. It is in one agenda at a time.
type Item interface{ place() *Place }

// Agenda holds items by when they are due. The zero value is empty. It is not safe for
// use by several goroutines.
type Agenda[T Item] struct{ order order[T] }

// Put enters an item, or moves it.
func (a *Agenda[T]) Put(item T, due time.Time) {
	p := item.place()
	p.due = due
	if p.Listed() {
		heap.Fix(&a.order, p.position-1)
		return
	}
	heap.Push(&a.order, item)
}

// Remove takes an item out; it has no effect on one that is not in.
func (a *Agenda[T]) Remove(item T) {
	if p := item.place(); p.Listed() {
		heap.Remove(&a.order, p.position-1)
	}
}

// First returns the item that is due first, and leaves it in. ok is false where there
// is none.
func (a *Agenda[T]) First() (item T, ok bool) {
	if len(a.order) == 0 {
		return item, false
	}
	return a.order[0], true
}

// Next returns when the first item is due; the zero time where there is none.
func (a *Agenda[T]) Next() time.Time {
	if len(a.order) == 0 {
		return time.Time{}
	}
	return a.order[0].place().due
}

// Len is the number of items.
func (a *Agenda[T]) Len() int { return len(a.order) }

// All are the items that are in now, in no order. They may be moved meanwhile.
func (a *Agenda[T]) All() iter.Seq[T] { return slices.Values(slices.Clone(a.order)) }

// order implements heap.Interface.
type order[T Item] []T

func (o order[T]) Len() int { return len(o) }

func (o order[T]) Less(i, j int) bool { return o[i].place().due.Before(o[j].place().due) }

func (o order[T]) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].place().position, o[j].place().position = i+1, j+1
}

func (o *order[T]) Push(x any) {
	item := x.(T)
	*o = append(*o, item)
	item.place().position = len(*o)
}

func (o *order[T]) Pop() any {
	last := len(*o) - 1
	item := (*o)[last]
	clear((*o)[last:])
	*o = (*o)[:last]
	item.place().position = 0
	return item
}
