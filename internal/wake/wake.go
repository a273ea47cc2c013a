// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wake wakes goroutines that wait for something to do.
package wake

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

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

// Wait waits until the signal is set or d has passed. It returns false if ctx ends before.
func (s Signal) Wait(ctx context.Context, c clock.Clock, d time.Duration) bool {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
	case <-s:
	}
	return true
}

// Sleep waits until d has passed. It returns false if ctx ends before.
func Sleep(ctx context.Context, c clock.Clock, d time.Duration) bool {
	return Signal(nil).Wait(ctx, c, d)
}

// Every calls f once in each interval, until ctx ends: at the same instants as others with this
// interval, since waking an idle process costs more than most of what it does then.
func Every(ctx context.Context, c clock.Clock, interval time.Duration, f func()) {
	for now := c.Now(); Sleep(ctx, c, now.Truncate(interval).Add(interval).Sub(now)); now = c.Now() {
		f()
	}
}
