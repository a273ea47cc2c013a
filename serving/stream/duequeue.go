// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/serving/delayqueue"
)

// tick is the precision of all deadlines. One timer for all watchers takes a fraction of the
// memory of a timer for each.
const tick = 250 * time.Millisecond

// dueQueue orders watchers by the tick of their next check.
type dueQueue struct {
	start time.Time
	// current is the number of the current tick since start. It follows the monotonic clock, so
	// that no watch ends early or is forgotten when the wall clock is set.
	current atomic.Int64

	mu    sync.Mutex
	queue delayqueue.Queue[*Watcher]
}

// tickAt returns the number of the tick at a time.
func (q *dueQueue) tickAt(at time.Time) int64 { return int64(at.Sub(q.start) / tick) }

// reached reports whether a time, unless it is zero, has come in terms of ticks.
func (q *dueQueue) reached(at, now time.Time) bool {
	return !at.IsZero() && q.tickAt(at) <= q.tickAt(now)
}

// put queues a watcher, unless it is already due earlier.
func (q *dueQueue) put(w *Watcher, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	due := q.start.Add(time.Duration(q.tickAt(at)) * tick)
	if !w.Queued() || due.Before(w.Due()) {
		q.queue.Put(w, due)
	}
}

func (q *dueQueue) remove(w *Watcher) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue.Remove(w)
}

// advance sets the current tick, and removes and returns the watchers that are due.
func (q *dueQueue) advance(now time.Time) []*Watcher {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.current.Store(q.tickAt(now))
	var due []*Watcher
	for {
		w, ok := q.queue.Peek()
		if !ok || !q.reached(w.Due(), now) {
			return due
		}
		q.queue.Remove(w)
		due = append(due, w)
	}
}
