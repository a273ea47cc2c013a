// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"maps"
	"strings"
	"sync"
	"time"
)

// failuresToReport is the number of failed attempts in a row after which the
// conditions speak of it.
const failuresToReport = 3

// memory holds what may be lost at a restart: it shortens waits, spares the status
// some writes, and counts writes in a contest (that one was lost is in the status).
type memory struct {
	mu       sync.Mutex
	failures map[string]int
	gone     map[string]map[string]time.Time
	failing  map[string]time.Time
	moments  map[string]map[string]time.Time
	contests map[string]map[string]*contest
}

func newMemory() *memory {
	return &memory{
		failures: map[string]int{},
		gone:     map[string]map[string]time.Time{},
		failing:  map[string]time.Time{},
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

// goneSince returns when an APIService was first seen to be gone.
func (m *memory) goneSince(backend, apiService string, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone[backend] == nil {
		m.gone[backend] = map[string]time.Time{}
	}
	if since, ok := m.gone[backend][apiService]; ok {
		return since
	}
	m.gone[backend][apiService] = now
	return now
}

// confirmed forgets goneSince.
func (m *memory) confirmed(backend, apiService string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.gone[backend], apiService)
}

// failingSince returns when sources were first seen to fail, and forgets it once
// they do not.
func (m *memory) failingSince(backend string, failing bool, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !failing {
		delete(m.failing, backend)
		return now
	}
	if since, ok := m.failing[backend]; ok {
		return since
	}
	m.failing[backend] = now
	return now
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
	delete(m.gone, backend)
	delete(m.failing, backend)
	delete(m.moments, backend)
	delete(m.contests, backend)
}
