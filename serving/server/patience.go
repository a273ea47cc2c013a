// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// sourcesTimeout bounds how long the first readiness waits for sources.
const sourcesTimeout = 30 * time.Second

// patientGate is open once a check passes, or after a time: what a pod can do without
// must not keep it out for ever.
type patientGate struct {
	name  string
	check func() error
	clock clock.PassiveClock
	// timeout counts from when the gate was first tried.
	timeout time.Duration
	// waiting is what is waited for, and without what happens after the timeout.
	waiting, without string

	began  time.Time
	gaveUp bool
}

// Name implements gate.
func (g *patientGate) Name() string { return g.name }

// Check implements gate.
func (g *patientGate) Check(ctx context.Context) error {
	if g.began.IsZero() {
		g.began = g.clock.Now()
	}
	err := g.check()
	if err == nil || g.gaveUp {
		return nil
	}
	if g.clock.Since(g.began) >= g.timeout {
		g.gaveUp = true
		klog.FromContext(ctx).Info("Went on without "+g.waiting, "waited", g.timeout, "reason", err.Error())
		return nil
	}
	return fmt.Errorf("waiting for %s: %w (%s after %s)", g.waiting, err, g.without, g.timeout)
}
