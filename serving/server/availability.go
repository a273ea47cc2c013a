// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
)

// availability tells whether requests for resource metrics can be answered. While they are not
// collected, and until the first rates are known, a list would be empty, which clients take for
// the truth; and the operator would register APIServices for it.
type availability struct {
	clock clock.PassiveClock
	// hasRates reports whether rates are known, or else why not.
	hasRates func() (bool, string)
	// timeout is how long rates are waited for.
	timeout time.Duration

	// known is true once rates were known, until collect(false).
	known atomic.Bool
	mu    sync.Mutex
	// since is when the collection began, or zero if there is none.
	since time.Time
}

// collect sets whether resource metrics are collected.
func (a *availability) collect(collected bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !collected:
		a.since = time.Time{}
		a.known.Store(false)
	case a.since.IsZero():
		a.since = a.clock.Now()
	}
}

// collected reports whether resource metrics are collected.
func (a *availability) collected() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.since.IsZero()
}

// check returns nil, or an error with status 503.
func (a *availability) check() error {
	if a.known.Load() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		return apierrors.NewServiceUnavailable("resource metrics are not collected: spec.resourceMetrics of the MetricsBackend is not set, or was not read yet")
	}
	if has, why := a.hasRates(); !has && a.clock.Since(a.since) < a.timeout {
		return apierrors.NewServiceUnavailable("resource metrics are not known yet: " + why)
	}
	a.known.Store(true)
	return nil
}
