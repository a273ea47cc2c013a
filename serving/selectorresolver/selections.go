// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package selectorresolver

import (
	"container/list"
	"sync"
	"time"
)

// selections are what selectors select, as of some minutes ago at most. They are
// bounded by the names they have together, since one may have thousands, and by their
// number; those that were wanted longest ago make room.
type selections struct {
	mu    sync.Mutex
	byKey map[string]*list.Element
	// recent has those wanted last at the front.
	recent list.List
	names  int
}

// selection is what a selector selects, as of a time.
type selection struct {
	key   string
	names []string
	at    time.Time
}

const (
	// keptNames is how many names are kept: some 20 MB.
	keptNames = 200_000
	// kept is how many selections are kept.
	kept = 2000
)

func newSelections() *selections { return &selections{byKey: map[string]*list.Element{}} }

// get returns a selection that is no older than keptFor.
func (s *selections) get(key string, now time.Time) (selection, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byKey[key]
	if e == nil {
		return selection{}, false
	}
	found := e.Value.(selection)
	if now.Sub(found.at) >= keptFor {
		s.remove(e)
		return selection{}, false
	}
	s.recent.MoveToFront(e)
	return found, true
}

// put keeps a selection in place of an older one.
func (s *selections) put(of selection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byKey[of.key]; e != nil {
		s.remove(e)
	}
	s.byKey[of.key] = s.recent.PushFront(of)
	s.names += len(of.names)
	for s.names > keptNames || len(s.byKey) > kept {
		s.remove(s.recent.Back())
	}
}

func (s *selections) remove(e *list.Element) {
	of := s.recent.Remove(e).(selection)
	delete(s.byKey, of.key)
	s.names -= len(of.names)
}
