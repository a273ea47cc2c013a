// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wake wakes goroutines that wait for something to do.
package wake

// Signal is received from by the one goroutine that is to be woken.
type Signal chan struct{}

// NewSignal returns a Signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Set makes the next receive return at once. It does not block, and sets that no receive
// has followed yet count as one.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}
