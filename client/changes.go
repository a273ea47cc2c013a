// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"container/list"
	"context"
	"sync"
)

// ChangeType is what happened to an object.
type ChangeType string

const (
	// Updated means that the object is new, or has a new data point.
	Updated ChangeType = "Updated"
	// Dropped means that the object left the snapshot. The Change holds its last data point.
	Dropped ChangeType = "Dropped"
)

// Change is one change of the snapshot.
type Change[T any] struct {
	Type   ChangeType
	Object *T
}

// changeQueue delivers changes on one channel. It holds at most one pending change per object, the newest, so a slow
// reader neither blocks the stream nor costs unbounded memory.
type changeQueue[T any] struct {
	out  chan Change[T]
	wake chan struct{} // buffered; signals that the queue is not empty

	mu      sync.Mutex
	queue   *list.List // of pendingChange[T], oldest first
	pending map[string]*list.Element
	known   map[string]struct{} // objects that the reader has received: only these need a Dropped
}

type pendingChange[T any] struct {
	key    string
	change Change[T]
}

func newChangeQueue[T any]() *changeQueue[T] {
	return &changeQueue[T]{
		out:     make(chan Change[T]),
		wake:    make(chan struct{}, 1),
		queue:   list.New(),
		pending: map[string]*list.Element{},
		known:   map[string]struct{}{},
	}
}

func (q *changeQueue[T]) add(key string, change Change[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	element, isPending := q.pending[key]
	if _, known := q.known[key]; change.Type == Dropped && !known {
		if isPending {
			q.queue.Remove(element)
			delete(q.pending, key)
		}
		return
	}
	if isPending {
		element.Value = pendingChange[T]{key, change}
		return
	}
	q.pending[key] = q.queue.PushBack(pendingChange[T]{key, change})
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// pop removes and returns the oldest change.
func (q *changeQueue[T]) pop() (Change[T], bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	element := q.queue.Front()
	if element == nil {
		return Change[T]{}, false
	}
	first := q.queue.Remove(element).(pendingChange[T])
	delete(q.pending, first.key)
	if first.change.Type == Dropped {
		delete(q.known, first.key)
	} else {
		q.known[first.key] = struct{}{}
	}
	return first.change, true
}

// run sends changes until ctx ends, then closes the channel.
func (q *changeQueue[T]) run(ctx context.Context) {
	defer close(q.out)
	for {
		change, ok := q.pop()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-q.wake:
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case q.out <- change:
		}
	}
}
