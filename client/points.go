// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// points holds the newest data point of each object, and tells the feed what changed.
type points[T any] struct {
	key    func(*T) string
	sample func(*T) (time.Time, string)
	maxAge time.Duration
	feed   *feed[T]

	mu      sync.RWMutex
	entries map[string]*entry[T]
	live    int // entries that are not dropped
	// within holds them by the namespace of their key, so that a list of one costs what its objects cost.
	within map[string]map[string]*entry[T]
}

type entry[T any] struct {
	object  *T
	renewed time.Time // when its data point first arrived, on our clock: the server's may be another
	seen    time.Time // when it was last sent to us, new or not
	// dropped entries stay for a while, without their place in snapshots, so that a replay of the same old data point
	// does not bring them back.
	dropped bool
}

// put takes a data point in, and reports whether it is new; one that is known, or older than the one at hand, changes
// nothing.
func (p *points[T]) put(object *T, now time.Time) (renewed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.putLocked(p.key(object), object, now)
}

func (p *points[T]) putLocked(key string, object *T, now time.Time) (renewed bool) {
	e, known := p.entries[key]
	if !known {
		e = &entry[T]{dropped: true}
		p.entries[key] = e
	}
	e.seen = now
	if known {
		at, version := p.sample(object)
		heldAt, heldVersion := p.sample(e.object)
		if at.Equal(heldAt) && version == heldVersion || at.Before(heldAt) && !e.dropped {
			return false
		}
	}
	if e.dropped {
		p.live++
		namespace := namespaceOf(key)
		if p.within[namespace] == nil {
			p.within[namespace] = map[string]*entry[T]{}
		}
		p.within[namespace][key] = e
	}
	e.object, e.renewed, e.dropped = object, now, false
	p.feed.add(key, Change[T]{Type: Updated, Object: object})
	return true
}

// replace takes a complete list in: what it does not hold is gone. It reports whether a data point of it is new.
func (p *points[T]) replace(objects []*T, now time.Time) (renewed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	listed := make(map[string]bool, len(objects))
	for _, object := range objects {
		key := p.key(object)
		listed[key] = true
		renewed = p.putLocked(key, object, now) || renewed
	}
	for key, e := range p.entries {
		if !listed[key] {
			p.dropLocked(key, e)
			delete(p.entries, key)
		}
	}
	return renewed
}

// empty tells whether there is nothing that could grow old.
func (p *points[T]) empty() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.live == 0
}

// remove drops an object that the server says is gone.
func (p *points[T]) remove(object *T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := p.entries[p.key(object)]; ok {
		p.dropLocked(p.key(object), e)
	}
}

// expire drops what was not renewed within maxAge, and in the end forgets it.
func (p *points[T]) expire(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, e := range p.entries {
		if now.Sub(e.renewed) >= p.maxAge {
			p.dropLocked(key, e)
		}
		if e.dropped && now.Sub(e.seen) >= 2*p.maxAge {
			delete(p.entries, key)
		}
	}
}

func (p *points[T]) dropLocked(key string, e *entry[T]) {
	if e.dropped {
		return
	}
	e.dropped = true
	p.live--
	namespace := namespaceOf(key)
	if delete(p.within[namespace], key); len(p.within[namespace]) == 0 {
		delete(p.within, namespace)
	}
	p.feed.add(key, Change[T]{Type: Dropped, Object: e.object})
}

// namespaceOf is empty for what has none.
func namespaceOf(key string) string {
	namespace, _, namespaced := strings.Cut(key, "/")
	if !namespaced {
		return ""
	}
	return namespace
}

// snapshot goes by the age at this moment: it is right, too, while a request keeps expire from running. No namespace is
// all of them.
func (p *points[T]) snapshot(namespace string, now time.Time) []*T {
	type keyed struct {
		key    string
		object *T
	}
	p.mu.RLock()
	entries := p.entries
	if namespace != "" {
		entries = p.within[namespace]
	}
	held := make([]keyed, 0, len(entries))
	for key, e := range entries {
		if !e.dropped && now.Sub(e.renewed) < p.maxAge {
			held = append(held, keyed{key, e.object})
		}
	}
	p.mu.RUnlock()
	slices.SortFunc(held, func(a, b keyed) int { return strings.Compare(a.key, b.key) })
	out := make([]*T, len(held))
	for i := range held {
		out[i] = held[i].object
	}
	return out
}
