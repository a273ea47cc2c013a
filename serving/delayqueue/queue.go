// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package delayqueue orders items by the time at which they are due.
package delayqueue

import (
	"container/heap"
	"iter"
	"slices"
	"time"
)

// Entry records when an item is due and where it is in its Queue. Items embed it. The
// zero value belongs to no queue.
type Entry struct {
	due time.Time
	// position in the heap, counted from 1.
	position int
}

// Due returns when the item is due. It keeps its value after the item is removed.
func (e *Entry) Due() time.Time { return e.due }

// Queued reports whether the item is in a queue.
func (e *Entry) Queued() bool { return e.position > 0 }

func (e *Entry) entry() *Entry { return e }

// Item is a pointer to a struct that embeds Entry. It is in at most one queue at a time.
type Item interface{ entry() *Entry }

// Queue is a heap of items ordered by due time. The zero value is empty. It is not safe
// for concurrent use.
type Queue[T Item] struct{ items items[T] }

// Put adds an item, or changes when it is due.
func (q *Queue[T]) Put(item T, due time.Time) {
	e := item.entry()
	e.due = due
	if e.Queued() {
		heap.Fix(&q.items, e.position-1)
		return
	}
	heap.Push(&q.items, item)
}

// Remove removes an item if it is in the queue.
func (q *Queue[T]) Remove(item T) {
	if e := item.entry(); e.Queued() {
		heap.Remove(&q.items, e.position-1)
	}
}

// Peek returns the item that is due first without removing it, or false if the queue is empty.
func (q *Queue[T]) Peek() (item T, ok bool) {
	if len(q.items) == 0 {
		return item, false
	}
	return q.items[0], true
}

// NextDue returns when the first item is due, or the zero time if the queue is empty.
func (q *Queue[T]) NextDue() time.Time {
	if len(q.items) == 0 {
		return time.Time{}
	}
	return q.items[0].entry().due
}

// Len returns the number of items.
func (q *Queue[T]) Len() int { return len(q.items) }

// All iterates over a snapshot of the items in no particular order; Put and Remove may be
// called meanwhile.
func (q *Queue[T]) All() iter.Seq[T] { return slices.Values(slices.Clone(q.items)) }

// items implements heap.Interface.
type items[T Item] []T

func (s items[T]) Len() int { return len(s) }

func (s items[T]) Less(i, j int) bool { return s[i].entry().due.Before(s[j].entry().due) }

func (s items[T]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].entry().position, s[j].entry().position = i+1, j+1
}

func (s *items[T]) Push(x any) {
	item := x.(T)
	*s = append(*s, item)
	item.entry().position = len(*s)
}

func (s *items[T]) Pop() any {
	last := len(*s) - 1
	item := (*s)[last]
	clear((*s)[last:])
	*s = (*s)[:last]
	item.entry().position = 0
	return item
}
