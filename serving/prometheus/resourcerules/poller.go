// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcerules publishes data points of nodes and pods from a source instead of
// from kubelets: it evaluates the resource rules at each interval.
//
// Points hold only what the source returned:
//   - memory, an instant value, tells which containers run. A container with a CPU value
//     alone has ended and is left out: rates outlive it by their window. One with memory
//     alone has just started, and its pod gets no new point until it has both;
//   - a container with two series, or with a value that is not a plausible number, is
//     unknown, and its pod gets no new point either;
//   - the time of a point is that of the evaluation, as the source reports it, and its
//     window is that of the rules.
package resourcerules

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/schedule"
	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// Poller evaluates resource rules. Its methods may be called at any time, also before Run.
type Poller struct {
	store *samplestore.Store
	clock clock.WithTicker
	find  func(string) (query.Source, bool)
	wake  wake.Signal

	mu      sync.Mutex
	queries *rules.ResourceQueries
	// interrupt cancels the running poll.
	interrupt context.CancelFunc
	// report is that of the newest poll with these queries.
	report Report
}

// Report is the outcome of a poll.
type Report struct {
	// Done is false before the first poll.
	Done bool
	// Nodes and Pods count those in the cluster that got a point.
	Nodes, Pods int
	// PodsOnly is set if the rules have no queries for nodes.
	PodsOnly bool
	// Newest is the time of the newest point; zero if there is none.
	Newest metav1.Time
	// Problems are by path below spec.resourceMetrics.rules.
	Problems []v1alpha1.RuleHealth
}

// Complete reports whether both nodes and pods have points, or pods if the rules are for
// pods only.
func (r *Report) Complete() bool { return r.Pods > 0 && (r.Nodes > 0 || r.PodsOnly) }

// New returns a poller without queries, which publishes to store. find returns the source
// with a name in spec.sources.
func New(store *samplestore.Store, c clock.WithTicker, find func(name string) (query.Source, bool)) *Poller {
	return &Poller{store: store, clock: c, find: find, wake: wake.NewSignal()}
}

// Apply sets the queries and evaluates them at once; nil stops polling. Points in the store
// stay until they expire or newer ones replace them, so that there is no gap when kubelets
// take over or are taken over from.
func (p *Poller) Apply(q *rules.ResourceQueries) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queries, p.report = q, Report{}
	if p.interrupt != nil {
		// The source may hang, and the new queries may be for another one.
		p.interrupt()
	}
	p.wake.Set()
}

// Report returns the outcome of the newest poll.
func (p *Poller) Report() Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.report
}

const (
	// firstRetry is the time to the next poll while none was complete: the cluster's objects
	// may not be known yet. It doubles each time, up to the interval.
	firstRetry = 5 * time.Second
	// idle is how long Run sleeps without queries.
	idle = time.Hour
	// maxEarly is how much too early a timer may fire, by the clock: a clock that is being
	// adjusted runs fast or slow for a while.
	maxEarly = 20 * time.Millisecond
)

// Run polls until the context ends.
func (p *Poller) Run(ctx context.Context) {
	timer := p.clock.NewTimer(0)
	defer timer.Stop()
	// scheduled is set if the timer was set for a slot, rather than for a retry.
	scheduled := false
	retry := firstRetry
	for {
		select {
		case <-p.wake:
			// The queries are read below.
			retry = firstRetry
		default:
		}
		p.mu.Lock()
		q := p.queries
		pollCtx, cancel := context.WithCancel(ctx)
		p.interrupt = cancel
		p.mu.Unlock()
		wait := idle
		if q != nil {
			at, slots := p.clock.Now(), slotsOf(q)
			if scheduled {
				// Timers are late, each by another time, but points are those of the slot.
				at = slots.Start(at.Add(maxEarly))
			}
			hold := p.poll(pollCtx, q, at)
			wait, scheduled = slots.Next(at.Add(hold)).Sub(p.clock.Now()), true
			if r := p.Report(); r.Complete() {
				retry = firstRetry
			} else if hold == 0 && wait > retry {
				wait, scheduled = retry, false
				retry *= 2
			}
		}
		cancel()
		timer.Reset(max(wait, 0))
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
			scheduled, retry = false, firstRetry
		case <-timer.C():
		}
	}
}

// slotsOf returns when queries are evaluated: on all replicas at the same instants, so that
// their points have the same times.
func slotsOf(q *rules.ResourceQueries) schedule.Schedule {
	return schedule.Schedule{
		Interval: q.Interval,
		Phase:    schedule.Phase(q.Interval, q.Source, q.CPU.Containers, q.CPU.Nodes, q.Memory.Containers, q.Memory.Nodes),
	}
}

// poll evaluates the queries for one instant and publishes the results. It returns how long the source
// wants no more queries.
func (p *Poller) poll(ctx context.Context, q *rules.ResourceQueries, at time.Time) (hold time.Duration) {
	e := &evaluation{queries: q, store: p.store, at: at.Truncate(time.Millisecond)}
	if source, found := p.find(q.Source); found {
		e.evaluate(ctx, source)
		if ctx.Err() != nil {
			return 0
		}
		e.publish()
	} else {
		e.problem("", v1alpha1.RuleFailing, string(query.ReasonUnknownSource), fmt.Sprintf("spec.sources has no source %q that can be asked", q.Source))
	}
	if ctx.Err() != nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queries != q {
		return 0 // the next poll, with the new queries, starts now
	}
	e.report.Done, e.report.PodsOnly = true, !q.HasNodes()
	if e.report.Newest.IsZero() {
		e.report.Newest = p.report.Newest
	}
	p.report = e.report
	return e.hold
}
