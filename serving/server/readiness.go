// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// gatePeriod is how often gates that are closed are tried.
	gatePeriod = time.Second
	// gateTimeout bounds one round of them.
	gateTimeout = 10 * time.Second
)

// gate is a condition of a pod's first readiness.
type gate interface {
	// Name is that of the health check.
	Name() string
	// Check returns nil when the gate is open, or what it is waiting for.
	Check(context.Context) error
}

// onlooker is a gate that depends on what it saw while those before it were closed.
type onlooker interface{ Look(context.Context) }

// firstReadiness holds a pod back from traffic until all gates were open at
// once. From then on it stays ready, whatever becomes of the gates: taking a
// started pod away because kube-apiserver cannot be asked, or because someone
// registers a version, would turn a small fault into an outage.
type firstReadiness struct {
	clock clock.WithTicker
	// gates in order: one is tried only when those before it are open, so that
	// the last one decides at the very moment at which the pod becomes ready.
	gates []gate

	passed atomic.Bool
	mu     sync.Mutex
	// closed says what each closed gate is waiting for, by name.
	closed map[string]error
}

func newFirstReadiness(c clock.WithTicker, gates ...gate) *firstReadiness {
	r := &firstReadiness{clock: c, gates: gates, closed: map[string]error{}}
	for _, g := range gates {
		r.closed[g.Name()] = errors.New("not tried yet")
	}
	return r
}

// run tries the gates until all are open or the context ends.
func (r *firstReadiness) run(ctx context.Context) {
	began := r.clock.Now()
	ticker := r.clock.NewTicker(gatePeriod)
	defer ticker.Stop()
	for !r.try(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
	klog.FromContext(ctx).Info("All gates of the first readiness are open; this pod takes traffic from now on",
		"after", r.clock.Since(began).Round(time.Millisecond))
}

// try goes through the gates once and returns whether all are open.
func (r *firstReadiness) try(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	for i, g := range r.gates {
		err := g.Check(ctx)
		r.record(ctx, g.Name(), err)
		if err != nil {
			for _, later := range r.gates[i+1:] {
				r.postpone(later.Name(), g.Name())
				if o, ok := later.(onlooker); ok {
					o.Look(ctx)
				}
			}
			return false
		}
	}
	r.passed.Store(true)
	readiness.Set(1)
	return true
}

// record keeps a gate's state and logs a change: that it opened, or what it
// waits for. Another wording of the same wait is for those who debug.
func (r *firstReadiness) record(ctx context.Context, name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.closed[name]
	r.closed[name] = err
	logger := klog.FromContext(ctx)
	switch {
	case err == nil && before != nil:
		logger.Info("A gate of the first readiness is open", "gate", name)
	case err != nil && before == nil:
		logger.Info("A gate of the first readiness closed again", "gate", name, "reason", err.Error())
	case err != nil && err.Error() != before.Error():
		logger.V(2).Info("A gate of the first readiness is closed", "gate", name, "reason", err.Error())
	}
}

// postpone keeps that a gate is not tried before another one is open.
func (r *firstReadiness) postpone(name, earlier string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed[name] = fmt.Errorf("waiting for %s", earlier)
}

// checks returns one health check for each gate.
func (r *firstReadiness) checks() []healthz.HealthChecker {
	var checks []healthz.HealthChecker
	for _, g := range r.gates {
		name := g.Name()
		checks = append(checks, healthz.NamedCheck(name, func(*http.Request) error { return r.state(name) }))
	}
	return checks
}

func (r *firstReadiness) state(name string) error {
	if r.passed.Load() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed[name]
}

// ready says whether the first readiness has been reached.
func (r *firstReadiness) ready() bool { return r.passed.Load() }

// syncGate is open once the informers have delivered their first lists.
type syncGate []*feed

// Name implements gate.
func (syncGate) Name() string { return "informers" }

// Check implements gate.
func (g syncGate) Check(context.Context) error {
	for _, f := range g {
		if !f.handled() {
			return fmt.Errorf("waiting for the list of %s from kube-apiserver: it must be reachable, and this account needs list and watch on %s", f.resource, f.resource)
		}
	}
	return nil
}

// primer says whether there are rates to serve.
type primer interface {
	Primed() (bool, string)
}
