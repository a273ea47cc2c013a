// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import "time"

// recordHealth updates the circuit breakers with the outcome of an evaluation.
func (v *Evaluator) recordHealth(ev *evaluation, failure *Failure, now time.Time) {
	q, t := ev.queue, ev.tenant
	if q.source != ev.source {
		return // the source was replaced
	}
	sourceProbe, tenantProbe := q.release(ev)
	if failure == nil || failure.Reason.SourceAnswered() {
		for _, p := range ev.parts {
			p.entry.failedFor = nil
		}
		v.recordSuccess(q, t, now)
		return
	}
	if !failure.Reason.sourceFault() && !failure.Reason.ambiguous() {
		return // the source is not the cause
	}
	t.breaker.record(failure, ev.key, ev.entry.query)
	if failure.RetryAfter > 0 || tenantProbe && !now.Before(t.breaker.heldUntil) || (!t.breaker.open() && t.breaker.shouldOpen()) {
		if !t.breaker.open() {
			v.logger.V(2).Info("Circuit breaker opened for a namespace: its queries fail fast, except for one probe at a time",
				"source", q.name, "namespace", t.tenant, "reason", failure.Reason, "message", failure.Message)
		}
		t.breaker.extend(now, v.random(), failure.RetryAfter)
	}
	if ev.entry.failedFor == nil {
		ev.entry.failedFor = t.tenant
	}
	// If the source has returned results to others meanwhile, the query is the cause.
	if sourceProbe || !q.lastSuccess.After(ev.started) {
		q.breaker.record(failure, ev.entry.failedFor, ev.entry.failedFor)
	}
	if sourceProbe || (!q.breaker.open() && (q.breaker.shouldOpen() || q.failsAllTenants(now))) {
		if !q.breaker.open() {
			q.breaker.failure = failure
			v.logger.Info("Circuit breaker opened: queries of the source fail fast, except for one probe at a time",
				"source", q.name, "reason", failure.Reason, "message", failure.Message)
		}
		q.breaker.extend(now, v.random(), 0)
		circuitBreakerOpen.WithLabelValues(q.name).Set(1)
	}
}

// recordSuccess closes the circuit breaker of the source and all tenants, or else that of one
// tenant.
func (v *Evaluator) recordSuccess(q *sourceQueue, t *tenantQueue, now time.Time) {
	q.lastSuccess = now
	if now.Before(t.breaker.heldUntil) {
		return // it started before the Retry-After
	}
	switch {
	case q.breaker.open():
		q.closeBreakers(now)
		v.logger.Info("Circuit breaker closed: the source works again", "source", q.name)
		v.retryFailed(q.name, func(string) bool { return true }, now)
	case t.breaker.open():
		v.logger.V(2).Info("Circuit breaker closed for a namespace", "source", q.name, "namespace", t.tenant)
		v.retryFailed(q.name, func(tenant string) bool { return tenant == t.tenant }, now)
	}
	q.breaker, t.breaker = circuitBreaker{}, circuitBreaker{}
}

// retryFailed stops sharing the failures of a source that works again for these tenants, and
// evaluates their queries that have subscribers.
func (v *Evaluator) retryFailed(source string, match func(tenant string) bool, now time.Time) {
	for q, e := range v.cache.entries {
		if q.Source != source || !match(e.requester) || e.outcome == nil || e.outcome.err == nil {
			continue
		}
		if f := failureOf(source, e.outcome.err); f.Reason.queryFault() || f.RetryAfter > 0 {
			continue
		}
		e.retryAt = time.Time{}
		if e.Queued() && e.evaluation == nil {
			v.due.Put(e, now)
		}
	}
	v.wake.Set()
}
