// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"container/list"
	"context"
	"sync"
)

// ChangeType tells what happened to an object.
type ChangeType string

const (
	// Updated tells of a new data point, of a new object or of one that is known.
	Updated ChangeType = "Updated"
	// Dropped tells that the object is no longer in the snapshot. The Change holds its last data point.
	Dropped ChangeType = "Dropped"
)

// Change is one change of the snapshot.
type Change[T any] struct {
	Type   ChangeType
	Object *T
}

// feed carries changes to the one channel. At most one change per object waits, the newest, so a slow reader neither
// holds up the stream nor costs memory without bound; a reader that never comes costs no more than the snapshot.
type feed[T any] struct {
	out    chan Change[T]
	wakeUp chan struct{} // holds one: there is something in order

	mu    sync.Mutex
	order *list.List // of waiting[T], the longest waiting first
	byKey map[string]*list.Element
	told  map[string]struct{} // objects that the reader knows: only their end is worth telling
}

type waiting[T any] struct {
	key    string
	change Change[T]
}

func newFeed[T any]() *feed[T] {
	return &feed[T]{
		out:    make(chan Change[T]),
		wakeUp: make(chan struct{}, 1),
		order:  list.New(),
		byKey:  map[string]*list.Element{},
		told:   map[string]struct{}{},
	}
}

func (f *feed[T]) add(key string, change Change[T]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	element, isWaiting := f.byKey[key]
	if _, told := f.told[key]; change.Type == Dropped && !told {
		if isWaiting {
			f.order.Remove(element)
			delete(f.byKey, key)
		}
		return
	}
	if isWaiting {
		element.Value = waiting[T]{key, change}
		return
	}
	f.byKey[key] = f.order.PushBack(waiting[T]{key, change})
	select {
	case f.wakeUp <- struct{}{}:
	default:
	}
}

// next takes the change that has waited longest.
func (f *feed[T]) next() (Change[T], bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	element := f.order.Front()
	if element == nil {
		return Change[T]{}, false
	}
	first := f.order.Remove(element).(waiting[T])
	delete(f.byKey, first.key)
	if first.change.Type == Dropped {
		delete(f.told, first.key)
	} else {
		f.told[first.key] = struct{}{}
	}
	return first.change, true
}

// run hands changes out until ctx ends, then closes the channel.
func (f *feed[T]) run(ctx context.Context) {
	defer close(f.out)
	for {
		change, ok := f.next()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-f.wakeUp:
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case f.out <- change:
		}
	}
}
