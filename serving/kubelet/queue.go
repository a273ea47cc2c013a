// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"container/heap"
	"time"
)

// queue holds the targets that wait, the earliest due first.
type queue []*target

// notQueued is the index of a target that is being scraped or gone.
const notQueued = -1

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	t := x.(*target)
	t.index = len(*q)
	*q = append(*q, t)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	t.index = notQueued
	return t
}

func (q *queue) add(t *target) { heap.Push(q, t) }

// remove takes a target out; it has no effect on one that is not queued.
func (q *queue) remove(t *target) {
	if t.index != notQueued {
		heap.Remove(q, t.index)
	}
}

// due returns the first target if it is due, and leaves it in.
func (q queue) due(now time.Time) *target {
	if len(q) == 0 || q[0].due.After(now) {
		return nil
	}
	return q[0]
}

// next returns when the first target is due; the zero time where there is none.
func (q queue) next() time.Time {
	if len(q) == 0 {
		return time.Time{}
	}
	return q[0].due
}
