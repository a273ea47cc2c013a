// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// backendTimeout bounds how long the first readiness waits for the MetricsBackend,
	// and for what is declared beside it.
	backendTimeout = 30 * time.Second
	// sourcesTimeout bounds how long it waits for sources.
	sourcesTimeout = 30 * time.Second
)

// patientGate is open once a check passes, or after a time: what a pod can do without
// must not keep it out for ever.
type patientGate struct {
	name  string
	check func() error
	clock clock.PassiveClock
	// timeout counts from when the gate was first tried.
	timeout time.Duration
	// subject is what is waited for, and without what there is in its place.
	subject, without string

	began  time.Time
	gaveUp bool
}

// newBackendGate is open once the MetricsBackend was read, or after a time: a pod that
// took traffic with the defaults would for a moment serve what is turned off, such as
// watch; but it must not stay out because of an object that it can do without.
func newBackendGate(read func() error, c clock.PassiveClock) *patientGate {
	return &patientGate{
		name: "backend", check: read, clock: c, timeout: backendTimeout, subject: "the MetricsBackend", without: "with the default settings",
	}
}

// newDeclaredGate is open once what is declared was read, or after a time: without
// policies external metrics answer 503, and everything else can be served.
func newDeclaredGate(read func() error, c clock.PassiveClock) *patientGate {
	return &patientGate{
		name: "declared-metrics", check: read, clock: c, timeout: backendTimeout,
		subject: "what is declared beside the MetricsBackend", without: "without",
	}
}

// newSourcesGate is open once the sources that are not optional have answered, or after
// a time: a source that is down must not keep the other APIs from being served.
func newSourcesGate(sources *sourceSet, c clock.PassiveClock) *patientGate {
	return &patientGate{name: "sources", check: sources.waiting, clock: c, timeout: sourcesTimeout, subject: "sources", without: "without"}
}

// newRatesGate is open once there are rates, or after a time: an empty list is an
// error to the HPA controller, but a node that never answers must not keep the
// pod out for ever.
func newRatesGate(source primer, c clock.PassiveClock, timeout time.Duration) *patientGate {
	primed := func() error {
		if primed, reason := source.Primed(); !primed {
			return errors.New(reason)
		}
		return nil
	}
	return &patientGate{name: "rates", check: primed, clock: c, timeout: timeout, subject: "rates", without: "without"}
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
		klog.FromContext(ctx).Info("A gate of the first readiness was waited for long enough; it goes on "+g.without,
			"gate", g.name, "waited", g.timeout, "reason", err.Error())
		return nil
	}
	return fmt.Errorf("waiting for %s: %w (goes on %s after %s)", g.subject, err, g.without, g.timeout)
}
