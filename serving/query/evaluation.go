// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"container/list"
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/internal/fairshare"
)

// maxEvaluation limits evaluations of sources without a timeout of their own, or with a longer
// one: subscribers would wait forever.
const maxEvaluation = 2 * time.Minute

// evaluation is one evaluation of a query, queued or running.
type evaluation struct {
	// key identifies it to circuit breakers.
	key    uint64
	entry  *entry
	source Source
	queue  *sourceQueue
	tenant *tenantQueue
	// other is another tenant that wants the result of a queued one; the same if there is none.
	other string
	// started is when it was sent to the source.
	started time.Time
	// at is the instant for which the query is evaluated.
	at time.Time
	// slot is the one that started is in.
	slot int64

	// parts are this and others that are evaluated with it, once it runs; nil for those others.
	parts []*evaluation
	// batch has their entries; nil if the query is evaluated alone.
	batch *batch

	// waiters counts the requests that wait for it.
	waiters int
	// queued is its element in the tenant's queue; nil while it runs.
	queued   *list.Element
	cancel   context.CancelFunc
	canceled bool

	// done is closed when result and err are set.
	done   chan struct{}
	result *Result
	err    error
}

func (ev *evaluation) complete(result *Result, err error) {
	ev.result, ev.err = result, err
	close(ev.done)
}

// current returns the outcome of an entry if it is still valid, or nil.
func (v *Evaluator) current(e *entry, source Source, now time.Time) *outcome {
	o := e.outcome
	if o == nil || e.source != source {
		return nil
	}
	slot, _ := e.slots.Slot(now)
	switch {
	case o.err == nil && (o.slot == slot || now.Before(o.until)):
		return o
	case o.err != nil && now.Before(e.retryAt):
		if e.failedSlot != slot {
			v.fail(e, source, slot, failureOf(e.query.Source, o.err), now)
		}
		return e.outcome
	}
	return nil
}

// evaluate starts or queues an evaluation for a tenant. If the tenant may have none, it returns the
// outcome, which becomes that of the entry unless there are subscribers of a tenant with less work.
func (v *Evaluator) evaluate(e *entry, requester string, source Source, now time.Time) (*evaluation, *outcome) {
	q := v.queues[e.query.Source]
	if q == nil {
		q = newSourceQueue(e.query.Source, v.limits.concurrency)
		v.queues[e.query.Source] = q
	}
	q.setSource(source)
	if e.source != source {
		// The last result of another source is no fallback.
		v.cache.dropResult(e)
		e.attempts, e.failedFor, e.failedIntervals = 0, nil, 0
	}
	v.detach(e)
	v.lastKey++
	t := q.tenant(requester)
	ev := &evaluation{key: v.lastKey, entry: e, source: source, queue: q, tenant: t, done: make(chan struct{})}
	failure, capacity := q.admit(ev, now), q.hasCapacity(t)
	if own := t.queue.Len(); failure == nil && !capacity && !fairshare.Allows(own, q.queued, 1, v.limits.maxQueued) {
		q.release(ev)
		failure = &Failure{Source: q.name, Reason: ReasonOverloaded, Message: fmt.Sprintf(
			"%d queries wait for this source already, %d of them of %s: it is too slow for its queries", q.queued, own, describeTenant(t.tenant))}
	}
	if failure != nil && len(e.subscribers) > 0 && q.load(v.requester(e)) < q.load(requester) {
		return nil, &outcome{err: e.evaluationError(failure, now)}
	}
	e.requester = requester
	if failure != nil {
		return nil, v.reject(e, source, failure, now)
	}
	e.evaluation = ev
	if capacity {
		v.start(ev, now)
	} else {
		q.push(ev, requester)
	}
	return ev, nil
}

// start runs an evaluation in a goroutine.
func (v *Evaluator) start(ev *evaluation, now time.Time) {
	v.addParts(ev, now)
	slot, slotStart := ev.entry.slots.Slot(now)
	ev.started, ev.at = now, time.UnixMilli(now.UnixMilli())
	if slices.ContainsFunc(ev.parts, func(p *evaluation) bool { return len(p.entry.subscribers) > 0 && !p.entry.replaces }) {
		ev.at = slotStart
	}
	ev.queue.addRunning(ev.tenant, 1)
	ctx, cancel := context.WithTimeout(klog.NewContext(v.ctx, v.logger), maxEvaluation)
	wanted := len(ev.parts)
	for _, p := range ev.parts {
		p.slot, p.cancel = slot, func() {
			if wanted--; wanted == 0 {
				cancel()
			}
		}
	}
	q := ev.entry.query
	q.Expression = ev.expression()
	if q.SampleTimes == SampleTimesNotNeeded && slices.ContainsFunc(ev.parts, func(p *evaluation) bool { return len(p.entry.subscribers) > 0 }) {
		q.SampleTimes = SampleTimesIfKnown
	}
	go v.run(ctx, cancel, ev, q)
}

// run evaluates q, which is the query of an evaluation or that of all its parts.
func (v *Evaluator) run(ctx context.Context, cancel func(), ev *evaluation, q Query) {
	defer cancel()
	started := v.clock.Now()
	result, err := evaluateRecovered(ctx, ev.source, q, ev.at)
	var failure *Failure
	var results []*Result
	switch {
	case err != nil:
		failure = failureOf(ev.queue.name, err)
	case result == nil:
		failure = &Failure{Source: ev.queue.name, Reason: ReasonInternal, Message: "the source returned neither a result nor an error"}
	case len(result.Samples) > maxSamples:
		failure = &Failure{Source: ev.queue.name, Reason: ReasonTooLarge, Message: fmt.Sprintf(
			"the result has %d samples, and the limit is %d: aggregate in the query", len(result.Samples), maxSamples)}
	case result.Time.IsZero():
		result = &Result{Time: ev.at, Samples: result.Samples, SampleTimes: result.SampleTimes, Warnings: result.Warnings, Bytes: result.Bytes}
	}
	if failure == nil {
		results, failure = ev.split(result)
	}
	if failure != nil {
		results = make([]*Result, len(ev.parts))
	}
	var newest time.Time
	if failure == nil {
		newest = result.newest()
	}
	v.finish(ev, results, newest, failure, started) //nolint:contextcheck // The next evaluations are not part of this one.
}

// evaluateRecovered evaluates a query, and turns a panic of the source into an error.
func evaluateRecovered(ctx context.Context, source Source, q Query, at time.Time) (result *Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			klog.FromContext(ctx).Error(nil, "A source panicked", "panic", p, "expression", q.Expression, "stack", string(debug.Stack()))
			err = fmt.Errorf("the source panicked: %v; see this server's log", p)
		}
	}()
	return source.Evaluate(ctx, q, at)
}

// finish records the outcome of an evaluation, whose newest sample is as of an instant that may not be known,
// and starts those that wait.
func (v *Evaluator) finish(ev *evaluation, results []*Result, newest time.Time, failure *Failure, started time.Time) {
	v.mu.Lock()
	defer v.unlock()
	now := v.clock.Now()
	ev.queue.addRunning(ev.tenant, -1)
	countEvaluation(ev, failure, now.Sub(started))
	if len(ev.parts) > 1 {
		ev.batch.record(len(ev.parts), failure, now)
	}
	switch {
	case v.closed:
		for _, p := range ev.parts {
			if !p.canceled {
				p.entry.evaluation = nil
				p.complete(nil, errShuttingDown(p.entry.query, now))
			}
		}
	case ev.mayEvaluateFewer(failure):
		v.evaluateFewer(ev, failure, now)
	default:
		if !ev.canceled {
			v.recordHealth(ev, failure, now)
		}
		v.follow(ev.entry, ev.at, newest, now)
		for i, p := range ev.parts {
			if !p.canceled {
				v.setResult(p, results[i], failure, now)
			}
		}
	}
	v.startQueued(ev.queue, now)
}

// setResult completes an evaluation, and makes its result the outcome of the entry.
func (v *Evaluator) setResult(ev *evaluation, result *Result, failure *Failure, now time.Time) {
	e := ev.entry
	if e.evaluation != ev {
		// The source was replaced meanwhile: only the requests that wait get this result.
		if failure != nil {
			ev.complete(nil, e.evaluationError(failure, now))
		} else {
			ev.complete(result, nil)
		}
		return
	}
	e.evaluation = nil
	if failure == nil {
		failure = v.cache.setResult(e, result)
	}
	e.failedAlone = failure != nil && len(ev.parts) == 1
	if failure != nil {
		e.attempts++
		e.retryAt = now.Add(v.retryAfter(e, failure))
		if ev.parts == nil && ev.isUnwanted() {
			// The next request shares the failure, and counts it.
			v.setOutcome(e, ev.source, &outcome{err: e.evaluationError(failure, now), slot: ev.slot})
		} else {
			v.fail(e, ev.source, ev.slot, failure, now)
		}
	} else {
		e.attempts, e.failedIntervals, e.retryAt = 0, 0, time.Time{}
		o := &outcome{result: result, slot: ev.slot}
		slot, _ := e.slots.Slot(now)
		if ev.isUnwanted() && (ev.parts != nil || slot != ev.slot) {
			o.until = now.Add(e.slots.Interval)
		}
		v.setOutcome(e, ev.source, o)
	}
	ev.complete(e.outcome.result, e.outcome.err)
	v.schedule(e, now)
}

// retryAfter returns for how long a failure is shared.
func (v *Evaluator) retryAfter(e *entry, failure *Failure) time.Duration {
	if failure.Reason.queryFault() {
		return e.slots.Interval
	}
	if failure.RetryAfter > 0 {
		// Other queries of the tenant go first.
		return failure.RetryAfter + min(e.slots.Interval, maxBackoff)
	}
	return min(backoff(e.attempts, v.random()), e.slots.Interval)
}

// moveQueued moves a queued evaluation to a tenant that also wants its result, if that has less work
// for the source.
func (v *Evaluator) moveQueued(ev *evaluation, requester string, now time.Time) {
	q := ev.queue
	switch load := q.load(requester); {
	case ev.queued == nil || requester == ev.tenant.tenant || load == math.MaxInt:
	case load < q.load(ev.tenant.tenant)-1:
		q.remove(ev)
		q.release(ev)
		q.push(ev, requester)
		v.startQueued(q, now)
	case ev.other == ev.tenant.tenant || load < q.load(ev.other):
		ev.other = requester
	}
}

// startQueued starts the evaluations that wait for a source, up to the limit.
func (v *Evaluator) startQueued(q *sourceQueue, now time.Time) {
	for !v.closed {
		ev := q.pop(true)
		if ev == nil {
			return
		}
		if failure := q.admit(ev, now); failure != nil && q.source == ev.source {
			if !q.breaker.open() && q.load(ev.other) < math.MaxInt {
				q.push(ev, ev.other)
				continue
			}
			e := ev.entry
			if e.evaluation == ev {
				e.evaluation = nil
				v.reject(e, ev.source, failure, now)
				v.schedule(e, now)
			}
			ev.complete(nil, e.evaluationError(failure, now))
			continue
		}
		v.start(ev, now)
	}
}

// setOutcome replaces the outcome of an entry and notifies its subscribers.
func (v *Evaluator) setOutcome(e *entry, source Source, o *outcome) {
	o.version = 1
	if e.outcome != nil {
		o.version += e.outcome.version
	}
	e.source, e.outcome, e.replaces = source, o, e.replaces && o.err != nil
	for s := range e.subscribers {
		v.notifications = append(v.notifications, notification{s, o})
	}
}

// fail makes a failure the outcome of an entry.
func (v *Evaluator) fail(e *entry, source Source, slot int64, failure *Failure, now time.Time) {
	if e.failedIntervals == 0 || e.failedSlot != slot {
		e.failedIntervals++
		e.failedSlot = slot
	}
	v.setOutcome(e, source, &outcome{err: e.evaluationError(failure, now), slot: slot})
}

// reject makes a failure without an evaluation the outcome of an entry, once per slot, and returns
// the outcome. It is not shared with the next request, which may be admitted.
func (v *Evaluator) reject(e *entry, source Source, failure *Failure, now time.Time) *outcome {
	e.retryAt = time.Time{}
	slot, _ := e.slots.Slot(now)
	if o := e.outcome; o == nil || o.err == nil || e.source != source || e.failedSlot != slot {
		v.fail(e, source, slot, failure, now)
	}
	return e.outcome
}

// failUnknownSource fails a query whose source is not in spec.sources.
func (v *Evaluator) failUnknownSource(e *entry, now time.Time) {
	v.cache.dropResult(e)
	v.detach(e)
	v.reject(e, nil, &Failure{Source: e.query.Source, Reason: ReasonUnknownSource,
		Message: "spec.sources of the MetricsBackend has no source of this name"}, now)
}

// detach leaves the evaluation of a replaced or removed source to the requests that wait for it.
func (v *Evaluator) detach(e *entry) {
	if ev := e.evaluation; ev != nil {
		e.evaluation = nil
		v.cancelUnused(ev)
	}
}

// cancelUnused cancels an evaluation without callers and subscribers. One that runs is not
// canceled, as the next caller gets its result, unless its source was replaced or its query is Live.
func (v *Evaluator) cancelUnused(ev *evaluation) {
	e := ev.entry
	if ev.waiters > 0 || ev.canceled || (e.evaluation == ev && (ev.queued == nil && !e.query.Live || len(e.subscribers) > 0)) {
		return
	}
	ev.canceled = true
	if ev.queued == nil {
		ev.cancel()
	} else {
		ev.queue.remove(ev)
	}
	ev.queue.release(ev)
	if e.evaluation == ev {
		e.evaluation = nil
	}
}
