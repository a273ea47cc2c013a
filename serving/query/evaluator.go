// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/internal/fairshare"
	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
	"github.com/metricsbackend/metrics-backend-operator/serving/delayqueue"
)

// expireInterval is how often unused queries are removed from the cache.
const expireInterval = 30 * time.Second

// Evaluator evaluates each query against its source at most once per interval and shares the
// result between all callers and subscribers.
//
// An interval is a slot of the wall clock whose start depends on the query alone (see slots),
// so replicas agree on it. The first request in a slot evaluates the query as of that moment,
// and all others until the slot's end share the result. A query with subscribers is evaluated at
// the start of each slot, as of that instant, on each replica; only one that replaces another
// query is first evaluated as of now (see Subscribe).
//
// Queries of one Batch have the same slots, and are evaluated as one.
//
// A failure is shared for one second, doubled with each failure in a row, up to 30s or the
// interval, whichever is shorter. A query that the source rejects is not retried before an
// interval has passed. A source that keeps failing has a circuitBreaker.
//
// A started evaluation is not canceled when its callers time out. The next caller gets the
// result, so clients with short timeouts do not overload a slow source.
type Evaluator struct {
	clock   clock.WithTicker
	random  func() float64
	sources func(name string) (Source, bool)
	limits  *limits

	// ctx is the context of all evaluations; cancel is called when Run returns.
	ctx    context.Context
	cancel context.CancelFunc
	// wake makes Run recompute its next deadline.
	wake wake.Signal

	// mu guards all that follows, and what it points to: a request is one atomic step.
	mu     sync.Mutex
	logger klog.Logger
	closed bool
	cache  cache
	queues map[string]*sourceQueue
	// due has the entries with subscribers by when they are evaluated next.
	due     delayqueue.Queue[*entry]
	lastKey uint64
	// reportedTenants have gauges.
	reportedTenants []string
	// notifications are sent to subscribers after mu is released.
	notifications []notification
}

var _ Querier = &Evaluator{}

// NewEvaluator returns an Evaluator, which needs Run. sources returns a source of spec.sources
// by its name; it is called for each request, and a source that differs (by ==) from the one
// that returned a result invalidates that result. random returns numbers in [0, 1) and may be
// called concurrently. maxWaiting limits the requests that wait for evaluations of any source; more
// fail with ReasonOverloaded at once, so that a source that hangs does not exhaust the request limit
// of this server.
func NewEvaluator(c clock.WithTicker, random func() float64, sources func(name string) (Source, bool), maxWaiting int) *Evaluator {
	ctx, cancel := context.WithCancel(context.Background())
	limits := newLimits(maxWaiting)
	return &Evaluator{
		clock: c, random: random, sources: sources, limits: limits,
		ctx: ctx, cancel: cancel, wake: wake.NewSignal(), logger: klog.Background(),
		cache:  cache{limits: limits, entries: map[Query]*entry{}, batches: map[batchKey]*batch{}, tenants: map[string]*tenantUsage{}},
		queues: map[string]*sourceQueue{},
	}
}

// Query implements Querier. Its error is an EvaluationError, unless the context has ended before.
func (v *Evaluator) Query(ctx context.Context, q Query) (*Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("query source %q: %w", q.Source, err)
	}
	source, known := v.sources(q.Source)
	q, requester := q.split()
	ev, o, how, now := v.join(q, requester, source, known) //nolint:contextcheck // An evaluation is for all callers, not for the first.
	if how != "" {
		requestsTotal.WithLabelValues(how).Inc()
	}
	if ev == nil {
		return observeAge(o.result, now), o.err
	}
	select {
	case <-ev.done:
	case <-ctx.Done():
	}
	v.mu.Lock()
	defer v.unlock()
	v.cache.addUsage(v.cache.getOrAddTenant(requester), usage{waiting: -1})
	select {
	case <-ev.done:
		return observeAge(ev.result, v.clock.Now()), ev.err
	default:
	}
	ev.waiters--
	v.cancelUnused(ev)
	err := ev.entry.evaluationError(&Failure{Source: q.Source, Reason: ReasonTimeout, Message: fmt.Sprintf(
		"no result before the request ended; %d evaluations of this source are running and %d are queued", ev.queue.running, ev.queue.queued)}, v.clock.Now())
	err.cause = ctx.Err()
	return nil, err
}

// join returns the evaluation that a request waits for, or the outcome that it gets at once. how
// is the label value that counts the request, and now is its time.
func (v *Evaluator) join(q Query, requester string, source Source, known bool) (ev *evaluation, o *outcome, how string, now time.Time) {
	v.mu.Lock()
	defer v.unlock()
	now = v.clock.Now()
	if v.closed {
		return nil, &outcome{err: errShuttingDown(q, now)}, "", now
	}
	var failure *Failure
	e := v.cache.entries[q]
	if e != nil {
		v.cache.touch(e, now)
		if o := v.current(e, source, now); known && o != nil {
			return nil, o, requestHit, now
		}
	}
	if own, total := v.cache.usage(requester).waiting, v.cache.total.waiting; known && !fairshare.Allows(own, total, 1, v.limits.maxWaiting) {
		failure = &Failure{Source: q.Source, Reason: ReasonOverloaded, Message: fmt.Sprintf(
			"%d requests wait for sources already, %d of them of %s: the sources are too slow for their queries", total, own, describeTenant(requester))}
	} else if e == nil {
		e, failure = v.cache.addWithinLimits(q, requester, now)
	}
	if failure != nil {
		return nil, &outcome{err: e.evaluationError(failure, now)}, requestRejected, now
	}
	if !known {
		v.failUnknownSource(e, now)
		return nil, e.outcome, requestRejected, now
	}
	ev, how = e.evaluation, requestShared
	if ev == nil || ev.source != source {
		how = requestMiss
		if ev, o = v.evaluate(e, requester, source, now); ev == nil {
			return nil, o, requestRejected, now
		}
	} else {
		v.moveQueued(ev, requester, now)
	}
	ev.waiters++
	v.cache.addUsage(v.cache.getOrAddTenant(requester), usage{waiting: 1})
	return ev, nil, how, now
}

// Cached returns the newest result or error of a query, and whether there is one. It does not
// evaluate the query.
func (v *Evaluator) Cached(q Query) (*Result, error, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	key, _ := q.split()
	e := v.cache.entries[key]
	if e == nil || e.outcome == nil {
		return nil, nil, false
	}
	return e.outcome.result, e.outcome.err, true
}

// Run evaluates the queries that have subscribers until the context ends. Then all waiting
// requests fail, and subscribers are no longer called.
func (v *Evaluator) Run(ctx context.Context) {
	v.mu.Lock()
	v.logger = klog.FromContext(ctx)
	v.mu.Unlock()
	defer v.close()
	expire := v.clock.Now().Add(expireInterval)
	for {
		now := v.clock.Now()
		if !now.Before(expire) {
			v.expire(now)
			expire = now.Add(expireInterval)
		}
		next := v.evaluateDue() //nolint:contextcheck // The context of evaluations ends with this one.
		wait := expire.Sub(v.clock.Now())
		if !next.IsZero() {
			wait = min(wait, next.Sub(v.clock.Now()))
		}
		if !v.wake.Wait(ctx, v.clock, max(wait, 0)) {
			return
		}
	}
}

// expire removes the entries, tenants and sources that are no longer used.
func (v *Evaluator) expire(now time.Time) {
	v.mu.Lock()
	defer v.unlock()
	v.cache.expire(now)
	v.reportedTenants = reportTenants(v.cache.tenants, v.reportedTenants)
	cached := map[sourceTenant]bool{}
	for q, e := range v.cache.entries {
		cached[sourceTenant{q.Source, e.requester}] = true
	}
	for name, q := range v.queues {
		if q.expire(cached, now.Add(-idleTime)) {
			deleteGauges(name)
			delete(v.queues, name)
		}
	}
}

// close cancels all evaluations.
func (v *Evaluator) close() {
	v.mu.Lock()
	defer v.unlock()
	v.closed = true
	v.cancel()
	for _, q := range v.queues {
		for ev := q.pop(false); ev != nil; ev = q.pop(false) {
			ev.entry.evaluation = nil
			ev.complete(nil, errShuttingDown(ev.entry.query, v.clock.Now()))
		}
	}
}

// unlock releases mu and notifies subscribers. The order of concurrent calls does not matter:
// a subscription skips outcomes older than the last one that it received.
func (v *Evaluator) unlock() {
	notifications := v.notifications
	v.notifications = nil
	v.mu.Unlock()
	for _, n := range notifications {
		n.subscription.notify(n.outcome)
	}
}
