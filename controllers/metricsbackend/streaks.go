// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"sync"
	"time"
)

// streak is how long something has been so without a break, in time and in looks.
type streak struct {
	since time.Time
	looks int
}

func (s streak) lasted(now time.Time) time.Duration { return now.Sub(s.since) }

// streaks holds them by backend and subject. A restart ends all of them, which
// makes the operator more patient; but it also forgets the counts, so that what
// came and went often is trusted as soon as at first.
type streaks struct {
	mu     sync.Mutex
	going  map[string]map[string]streak
	counts map[string]map[string]int
}

func newStreaks() *streaks {
	return &streaks{going: map[string]map[string]streak{}, counts: map[string]map[string]int{}}
}

// look notes whether subject is so now, and returns its streak, this look
// included; an empty one when it is not.
func (s *streaks) look(backend, subject string, now time.Time, isSo bool) streak {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !isSo {
		delete(s.going[backend], subject)
		return streak{since: now}
	}
	if s.going[backend] == nil {
		s.going[backend] = map[string]streak{}
	}
	current, ok := s.going[backend][subject]
	if !ok {
		current.since = now
	}
	current.looks++
	s.going[backend][subject] = current
	return current
}

// count adds n to how often subject has happened, and returns that.
func (s *streaks) count(backend, subject string, n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts[backend] == nil {
		s.counts[backend] = map[string]int{}
	}
	s.counts[backend][subject] += n
	return s.counts[backend][subject]
}

func (s *streaks) forget(backend string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.going, backend)
	delete(s.counts, backend)
}
