// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// store holds the newest data point of each object, and queues its changes.
type store[T any] struct {
	key      func(*T) string
	sampleID func(*T) (time.Time, string)
	maxAge   time.Duration
	changes  *changeQueue[T]

	mu          sync.RWMutex
	entries     map[string]*entry[T]
	live        int                             // entries that are not dropped
	byNamespace map[string]map[string]*entry[T] // the live entries, so that a list of one namespace costs only its objects
}

type entry[T any] struct {
	object    *T
	renewedAt time.Time // when its data point first arrived, by our clock
	seenAt    time.Time // when a data point last arrived, new or not
	// dropped entries are kept for a while, outside of snapshots, so that a replay of the same old data point does not
	// bring them back.
	dropped bool
}

func newStore[T any](api api[T], maxAge time.Duration) *store[T] {
	return &store[T]{
		key: api.key, sampleID: api.sampleID, maxAge: maxAge, changes: newChangeQueue[T](),
		entries: map[string]*entry[T]{}, byNamespace: map[string]map[string]*entry[T]{},
	}
}

// put stores a data point and reports whether it is new. A known or older one changes nothing.
func (s *store[T]) put(object *T, now time.Time) (renewed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.putLocked(s.key(object), object, now)
}

func (s *store[T]) putLocked(key string, object *T, now time.Time) (renewed bool) {
	e, known := s.entries[key]
	if !known {
		e = &entry[T]{dropped: true}
		s.entries[key] = e
	}
	e.seenAt = now
	if known {
		newTime, newID := s.sampleID(object)
		oldTime, oldID := s.sampleID(e.object)
		if newTime.Equal(oldTime) && newID == oldID || newTime.Before(oldTime) && !e.dropped {
			return false
		}
	}
	if e.dropped {
		s.live++
		namespace := namespaceOf(key)
		if s.byNamespace[namespace] == nil {
			s.byNamespace[namespace] = map[string]*entry[T]{}
		}
		s.byNamespace[namespace][key] = e
	}
	e.object, e.renewedAt, e.dropped = object, now, false
	s.changes.add(key, Change[T]{Type: Updated, Object: object})
	return true
}

// replace stores a complete list and removes all other objects. It reports whether a data point is new.
func (s *store[T]) replace(objects []*T, now time.Time) (renewed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed := make(map[string]bool, len(objects))
	for _, object := range objects {
		key := s.key(object)
		listed[key] = true
		renewed = s.putLocked(key, object, now) || renewed
	}
	for key, e := range s.entries {
		if !listed[key] {
			s.dropLocked(key, e)
			delete(s.entries, key)
		}
	}
	return renewed
}

// empty reports whether the snapshot has no objects, not even expired ones.
func (s *store[T]) empty() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.live == 0
}

// remove drops an object that the server has deleted.
func (s *store[T]) remove(object *T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries[s.key(object)]; ok {
		s.dropLocked(s.key(object), e)
	}
}

// expire drops objects that were not renewed within maxAge, and deletes entries not seen for twice that time.
func (s *store[T]) expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, e := range s.entries {
		if now.Sub(e.renewedAt) >= s.maxAge {
			s.dropLocked(key, e)
		}
		if e.dropped && now.Sub(e.seenAt) >= 2*s.maxAge {
			delete(s.entries, key)
		}
	}
}

func (s *store[T]) dropLocked(key string, e *entry[T]) {
	if e.dropped {
		return
	}
	e.dropped = true
	s.live--
	namespace := namespaceOf(key)
	if delete(s.byNamespace[namespace], key); len(s.byNamespace[namespace]) == 0 {
		delete(s.byNamespace, namespace)
	}
	s.changes.add(key, Change[T]{Type: Dropped, Object: e.object})
}

// namespaceOf returns the namespace of a key, or "" if its object has none.
func namespaceOf(key string) string {
	namespace, _, namespaced := strings.Cut(key, "/")
	if !namespaced {
		return ""
	}
	return namespace
}

// snapshot returns the objects of a namespace, or all if it is empty, in order of their keys. It checks ages itself, so
// it is right even while expire is not called because a request is running.
func (s *store[T]) snapshot(namespace string, now time.Time) []*T {
	type keyed struct {
		key    string
		object *T
	}
	s.mu.RLock()
	entries := s.entries
	if namespace != "" {
		entries = s.byNamespace[namespace]
	}
	found := make([]keyed, 0, len(entries))
	for key, e := range entries {
		if !e.dropped && now.Sub(e.renewedAt) < s.maxAge {
			found = append(found, keyed{key, e.object})
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(found, func(a, b keyed) int { return strings.Compare(a.key, b.key) })
	out := make([]*T, len(found))
	for i := range found {
		out[i] = found[i].object
	}
	return out
}
