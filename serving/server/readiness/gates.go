// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package readiness decides when a pod first becomes ready: once all of its gates are
// open at the same time.
package readiness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/serving/metricset"
)

const (
	// gatePeriod is the interval between two rounds of checks.
	gatePeriod = time.Second
	// gateTimeout limits the duration of one round.
	gateTimeout = 10 * time.Second
)

// MetricSet has the metrics of this package.
var MetricSet = metricset.New("metrics_backend_")

var gatesPassed = MetricSet.Gauge("readiness_gates_passed", "1 once all readiness gates were open at the same time, 0 before.")

// Gate is a condition for the first readiness of a pod.
type Gate interface {
	// Name returns the name of the health check.
	Name() string
	// Check returns nil when the gate is open, or else what it waits for.
	Check(context.Context) error
}

// prechecker is a Gate whose result depends on the time before its turn. Precheck is
// called in each round in which an earlier gate is closed.
type prechecker interface{ Precheck(context.Context) }

// Gates keeps a pod out of traffic until all gates have been open at the same time.
// After that the pod stays ready whatever the gates report: removing a started pod
// because kube-apiserver is unreachable, or because an APIService was added, would turn a
// small fault into an outage.
type Gates struct {
	// gates are checked in order, each only when the previous ones are open, so that the
	// last one is checked immediately before the pod becomes ready.
	gates []Gate

	passed atomic.Bool
	mu     sync.Mutex
	// closed holds the last result of each gate, by name.
	closed map[string]error
}

// NewGates returns closed gates. They are checked in the given order.
func NewGates(gates ...Gate) *Gates {
	r := &Gates{gates: gates, closed: map[string]error{}}
	for _, g := range gates {
		r.closed[g.Name()] = errors.New("not tried yet")
	}
	return r
}

// Run checks the gates until all are open or the context ends.
func (r *Gates) Run(ctx context.Context) {
	start := time.Now()
	err := wait.PollUntilContextCancel(ctx, gatePeriod, true, func(ctx context.Context) (bool, error) { return r.check(ctx), nil })
	if err == nil {
		klog.FromContext(ctx).Info("All readiness gates are open; this pod is ready from now on",
			"after", time.Since(start).Round(time.Millisecond))
	}
}

// check runs one round and reports whether all gates are open.
func (r *Gates) check(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	for i, g := range r.gates {
		err := g.Check(ctx)
		r.record(ctx, g.Name(), err)
		if err == nil {
			continue
		}
		for _, later := range r.gates[i+1:] {
			_ = r.setState(later.Name(), fmt.Errorf("waiting for %s", g.Name()))
			if p, ok := later.(prechecker); ok {
				p.Precheck(ctx)
			}
		}
		return false
	}
	r.passed.Store(true)
	gatesPassed.Set(1)
	return true
}

// record stores the result of a gate and logs when it opens or closes. A new reason of a
// closed gate is logged at a higher verbosity.
func (r *Gates) record(ctx context.Context, name string, err error) {
	before := r.setState(name, err)
	logger := klog.FromContext(ctx)
	switch {
	case err == nil && before != nil:
		logger.Info("A readiness gate is open", "gate", name)
	case err != nil && before == nil:
		logger.Info("A readiness gate closed again", "gate", name, "reason", err.Error())
	case err != nil && err.Error() != before.Error():
		logger.V(2).Info("A readiness gate is closed", "gate", name, "reason", err.Error())
	}
}

// setState stores the result of a gate and returns the previous one.
func (r *Gates) setState(name string, err error) (before error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, r.closed[name] = r.closed[name], err
	return before
}

// HealthChecks returns one health check per gate. None fails once all gates were open.
func (r *Gates) HealthChecks() []healthz.HealthChecker {
	var checks []healthz.HealthChecker
	for _, g := range r.gates {
		name := g.Name()
		checks = append(checks, healthz.NamedCheck(name, func(*http.Request) error {
			if r.passed.Load() {
				return nil
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.closed[name]
		}))
	}
	return checks
}

// NewScrapeTokenGate waits until check returns nil: until there is a token for kubelets. It has
// no timeout: a rollout must not replace pods that can scrape kubelets by pods that cannot.
func NewScrapeTokenGate(check func() error) Gate { return scrapeTokenGate{check} }

type scrapeTokenGate struct{ check func() error }

// Name implements Gate.
func (scrapeTokenGate) Name() string { return "scrape-token" }

// Check implements Gate.
func (g scrapeTokenGate) Check(context.Context) error { return g.check() }
