// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// backendTimeout limits the wait for the MetricsBackend and for the objects declared
	// beside it.
	backendTimeout = 30 * time.Second
	// sourcesTimeout limits the wait for sources.
	sourcesTimeout = 30 * time.Second
)

// timeoutGate opens when its check passes or its timeout expires. It is for what a pod can
// serve without.
type timeoutGate struct {
	name  string
	check func() error
	clock clock.PassiveClock
	// timeout counts from the first check.
	timeout time.Duration
	// subject names what the gate waits for, and fallback how the pod serves without it.
	subject, fallback string
	// expire, if set, is called when the timeout expires.
	expire func(context.Context)

	start   time.Time
	expired bool
}

// NewBackendGate waits until applied returns nil: until the settings of the MetricsBackend are
// applied. With the default settings a pod would briefly serve what is disabled, such as
// watch. After the timeout it calls applyDefaults.
func NewBackendGate(applied func() error, applyDefaults func(context.Context), c clock.PassiveClock) Gate {
	return &timeoutGate{
		name: "backend", check: applied, clock: c, timeout: backendTimeout, subject: "the MetricsBackend", fallback: "with the default settings",
		expire: applyDefaults,
	}
}

// NewDeclaredGate waits until applied returns nil: until the declared metrics and policies
// are applied. Without policies external metrics answer 503; everything else can be served.
func NewDeclaredGate(applied func() error, c clock.PassiveClock) Gate {
	return &timeoutGate{
		name: "declared-metrics", check: applied, clock: c, timeout: backendTimeout,
		subject: "what is declared beside the MetricsBackend", fallback: "without",
	}
}

// NewSourcesGate waits until check returns nil: until each source that is not optional has
// answered. A failing source must not keep the other APIs from being served.
func NewSourcesGate(check func() error, c clock.PassiveClock) Gate {
	return &timeoutGate{name: "sources", check: check, clock: c, timeout: sourcesTimeout, subject: "sources", fallback: "without"}
}

// NewRatesGate waits until hasRates reports that rates are known, since an empty list is
// an error to the HPA controller. A node that never answers must not keep the pod out.
func NewRatesGate(hasRates func() (bool, string), c clock.PassiveClock, timeout time.Duration) Gate {
	check := func() error {
		if has, reason := hasRates(); !has {
			return errors.New(reason)
		}
		return nil
	}
	return &timeoutGate{name: "rates", check: check, clock: c, timeout: timeout, subject: "rates", fallback: "without"}
}

// Name implements Gate.
func (g *timeoutGate) Name() string { return g.name }

// Check implements Gate.
func (g *timeoutGate) Check(ctx context.Context) error {
	if g.start.IsZero() {
		g.start = g.clock.Now()
	}
	err := g.check()
	if err == nil || g.expired {
		return nil
	}
	if g.clock.Since(g.start) >= g.timeout {
		g.expired = true
		if g.expire != nil {
			g.expire(ctx)
		}
		klog.FromContext(ctx).Info("A readiness gate timed out; the pod goes on "+g.fallback,
			"gate", g.name, "timeout", g.timeout, "reason", err.Error())
		return nil
	}
	return fmt.Errorf("waiting for %s: %w (goes on %s after %s)", g.subject, err, g.fallback, g.timeout)
}
