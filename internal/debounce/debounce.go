// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package debounce tracks how long conditions have held without interruption,
// so that short failures are neither reported nor acted on.
package debounce

import (
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Streak is how long a condition has held without interruption.
type Streak struct {
	// Elapsed is the time since the first observation.
	Elapsed time.Duration
	// Count is the number of observations.
	Count int
}

// Tracker tracks the conditions that keys name. It is safe for concurrent use and
// keeps its state in memory only: all streaks start over at a restart.
type Tracker[K comparable] struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	active map[K]observed
}

type observed struct {
	since time.Time
	count int
}

// New returns a Tracker without streaks.
func New[K comparable](c clock.PassiveClock) *Tracker[K] {
	return &Tracker[K]{clock: c, active: map[K]observed{}}
}

// Set records whether the condition holds now. It returns the streak, this
// observation included, or the zero Streak if the condition does not hold.
func (t *Tracker[K]) Set(key K, holds bool) Streak {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !holds {
		delete(t.active, key)
		return Streak{}
	}
	now := t.clock.Now()
	o, ok := t.active[key]
	if !ok {
		o.since = now
	}
	o.count++
	t.active[key] = o
	return Streak{Elapsed: now.Sub(o.since), Count: o.count}
}

// Get returns the streak without an observation, or the zero Streak.
func (t *Tracker[K]) Get(key K) Streak {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.active[key]
	if !ok {
		return Streak{}
	}
	return Streak{Elapsed: t.clock.Since(o.since), Count: o.count}
}

// Reset ends the streak of the condition.
func (t *Tracker[K]) Reset(key K) { t.Set(key, false) }

// ResetFunc ends the streaks of all conditions that match.
func (t *Tracker[K]) ResetFunc(match func(K) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.active, func(key K, _ observed) bool { return match(key) })
}
