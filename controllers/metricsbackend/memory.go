// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"maps"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// failuresToReport is the number of failed attempts in a row after which the
// conditions speak of it.
const failuresToReport = 3

// memory holds what may be lost at a restart: it shortens waits, spares the status
// some writes, and counts writes in a contest (that one was lost is in the status).
type memory struct {
	mu       sync.Mutex
	failures map[string]int
	moments  map[string]map[string]time.Time
	contests map[string]map[string]*contest
}

func newMemory() *memory {
	return &memory{
		failures: map[string]int{},
		moments:  map[string]map[string]time.Time{},
		contests: map[string]map[string]*contest{},
	}
}

// count returns how many attempts in a row have failed, this one included.
func (m *memory) count(backend string, failed error) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if failed == nil {
		delete(m.failures, backend)
		return 0
	}
	m.failures[backend]++
	return m.failures[backend]
}

// since returns when what was first seen to be so.
func (m *memory) since(backend, what string, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.moments[backend] == nil {
		m.moments[backend] = map[string]time.Time{}
	}
	if since, ok := m.moments[backend][what]; ok {
		return since
	}
	m.moments[backend][what] = now
	return now
}

// over forgets since: it is not so any more.
func (m *memory) over(backend, what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.moments[backend], what)
}

// allOver forgets since of all that begins with what.
func (m *memory) allOver(backend, what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.moments[backend], func(known string, _ time.Time) bool { return strings.HasPrefix(known, what) })
}

// overBut forgets since of all that begins with what, but for some of it.
func (m *memory) overBut(backend, what string, but sets.Set[string]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.moments[backend], func(known string, _ time.Time) bool { return strings.HasPrefix(known, what) && !but.Has(known) })
}

// knows tells whether since was asked of what, and it is not over.
func (m *memory) knows(backend, what string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.moments[backend][what]
	return ok
}

func (m *memory) forget(backend string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.failures, backend)
	delete(m.moments, backend)
	delete(m.contests, backend)
}

// waitedOut tells whether what was first seen to be so at least a wait ago, and
// otherwise has the backend looked at again when it is.
func (r *Reconciler) waitedOut(s *scope, what string, wait time.Duration) bool {
	left := wait - s.now.Sub(r.memory.since(s.backend.Name, what, s.now))
	if left > 0 {
		s.requeueWithin(left)
	}
	return left <= 0
}
