// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"container/list"
	"fmt"
	"math"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/internal/fairshare"
)

// sourceQueue has the evaluations of a source that wait, in a queue for each tenant, which is the
// requester of a query for the whole cluster. Tenants take turns. The Evaluator's mutex guards it.
//
// Its circuitBreaker opens when the source fails several tenants without any success since, or
// every tenant that queries it, so that no tenant's queries make it fail for others. If a source
// fails a single tenant, only the breaker of that tenant opens. A Retry-After opens that of the tenant
// that got it, and holds all its queries.
type sourceQueue struct {
	breaker circuitBreaker
	name    string
	source  Source
	// concurrency limits the running evaluations, defaultConcurrency for a source that sets no limit.
	concurrency, defaultConcurrency int

	tenants map[string]*tenantQueue
	// turns are the tenants with queued evaluations, in the order of their turns.
	turns list.List
	// running and queued are sums over all tenants.
	running, queued int
	// lastSuccess is when the source last returned a result for any query.
	lastSuccess time.Time
}

// tenantQueue has the evaluations of a source that wait for one tenant.
type tenantQueue struct {
	breaker circuitBreaker
	tenant  string
	running int
	queue   list.List
	// turn is its element in turns; nil while its queue is empty.
	turn *list.Element
}

func newSourceQueue(name string, defaultConcurrency int) *sourceQueue {
	q := &sourceQueue{name: name, defaultConcurrency: defaultConcurrency, tenants: map[string]*tenantQueue{}}
	q.closeBreakers(time.Time{})
	q.setGauges()
	return q
}

// setSource closes all circuit breakers if the source was replaced.
func (q *sourceQueue) setSource(source Source) {
	if q.source != source {
		q.source, q.lastSuccess, q.concurrency = source, time.Time{}, q.defaultConcurrency
		if c, ok := source.(ConcurrentSource); ok {
			q.concurrency = cmp.Or(c.Concurrency(), q.concurrency)
		}
		for _, t := range q.tenants {
			t.breaker.heldUntil = time.Time{}
		}
		q.closeBreakers(time.Time{})
	}
}

func (q *sourceQueue) tenant(name string) *tenantQueue {
	t := q.tenants[name]
	if t == nil {
		t = &tenantQueue{tenant: name}
		q.tenants[name] = t
	}
	return t
}

// push queues an evaluation for a tenant, instead of the tenant that it was for.
func (q *sourceQueue) push(ev *evaluation, tenant string) {
	ev.entry.requester, ev.other, ev.tenant = tenant, ev.tenant.tenant, q.tenant(tenant)
	ev.queued = ev.tenant.queue.PushBack(ev)
	if ev.tenant.turn == nil {
		ev.tenant.turn = q.turns.PushBack(ev.tenant)
	}
	q.queued++
	q.setGauges()
}

func (q *sourceQueue) remove(ev *evaluation) {
	ev.tenant.queue.Remove(ev.queued)
	ev.queued = nil
	if ev.tenant.queue.Len() == 0 {
		q.turns.Remove(ev.tenant.turn)
		ev.tenant.turn = nil
	}
	q.queued--
	q.setGauges()
}

// pop removes and returns the oldest evaluation of the next tenant that may have one more
// running, and ends its turn; without limited, however many run. It returns nil if there is none.
func (q *sourceQueue) pop(limited bool) *evaluation {
	for el := q.turns.Front(); el != nil; el = el.Next() {
		t := el.Value.(*tenantQueue)
		if limited && !q.hasCapacity(t) {
			continue
		}
		q.turns.MoveToBack(el)
		ev := t.queue.Front().Value.(*evaluation)
		q.remove(ev)
		return ev
	}
	return nil
}

// hasCapacity reports whether a tenant may have one more evaluation running.
func (q *sourceQueue) hasCapacity(t *tenantQueue) bool {
	return fairshare.Allows(t.running, q.running, 1, q.concurrency)
}

// addRunning counts an evaluation that has started, or with -1 one that has ended.
func (q *sourceQueue) addRunning(t *tenantQueue, n int) {
	q.running += n
	t.running += n
	q.setGauges()
}

// admit returns nil if the tenant is not held and the circuit breakers let an evaluation start, or why not.
func (q *sourceQueue) admit(ev *evaluation, now time.Time) *Failure {
	e := ev.entry
	if now.Before(ev.tenant.breaker.heldUntil) {
		q.release(ev)
		return &Failure{Source: q.name, Reason: ReasonRateLimited, circuitOpen: true, Message: fmt.Sprintf(
			"the source asked for a pause (Retry-After), in which it gets no query of %s, for a minute at most: raise its limit there, or ask less", describeTenant(ev.tenant.tenant))}
	}
	// A source that has answered since proves that failures which no query caused are over.
	b := &q.breaker
	if !b.open() {
		b = &ev.tenant.breaker
	}
	if p, ok := ev.source.(ProbedSource); ok && b.open() && b.failure.Reason.sourceFault() && p.Answered().After(b.failedAt) {
		q.closeBreakers(now)
	}
	if q.breaker.open() {
		return q.breaker.admit(ev.key, e.attempts, &e.lastProbe, ev.tenant.breaker.failure == nil, now)
	}
	return ev.tenant.breaker.admit(ev.key, e.attempts, &e.lastProbe, false, now)
}

// release lets the circuit breakers admit others after an evaluation, and reports whether it was
// the probe of the source or of the tenant.
func (q *sourceQueue) release(ev *evaluation) (sourceProbe, tenantProbe bool) {
	return q.breaker.release(ev.key), ev.tenant.breaker.release(ev.key)
}

// load is the work of a tenant for the source: less is done earlier. It is the highest while the
// circuit breaker of the tenant is open.
func (q *sourceQueue) load(tenant string) int {
	switch t := q.tenants[tenant]; {
	case t == nil:
		return 0
	case t.breaker.open():
		return math.MaxInt
	default:
		return t.running + t.queue.Len()
	}
}

// retryAt returns when queries of a tenant are next admitted; zero if they are now.
func (q *sourceQueue) retryAt(tenant string) time.Time {
	if t := q.tenants[tenant]; !q.breaker.open() && t != nil {
		return t.breaker.retryAt
	}
	return q.breaker.retryAt
}

// failsAllTenants reports whether the breakers of all tenants are open. The limit of one that is held says
// nothing about others.
func (q *sourceQueue) failsAllTenants(now time.Time) bool {
	for _, t := range q.tenants {
		if !t.breaker.open() || now.Before(t.breaker.heldUntil) {
			return false
		}
	}
	return true
}

// closeBreakers forgets all failures, except those of tenants that are held now.
func (q *sourceQueue) closeBreakers(now time.Time) {
	q.breaker = circuitBreaker{}
	for _, t := range q.tenants {
		if !now.Before(t.breaker.heldUntil) {
			t.breaker = circuitBreaker{}
		}
	}
	circuitBreakerOpen.WithLabelValues(q.name).Set(0)
}

// expire removes tenants without cached queries, and reports whether none is left. It keeps one whose
// circuit breaker would have been tried again after idle.
func (q *sourceQueue) expire(cached map[sourceTenant]bool, idle time.Time) bool {
	for name, t := range q.tenants {
		if !cached[sourceTenant{q.name, name}] && t.running == 0 && t.queue.Len() == 0 && t.breaker.retryAt.Before(idle) {
			delete(q.tenants, name)
		}
	}
	return len(q.tenants) == 0
}

type sourceTenant struct{ source, tenant string }

func (q *sourceQueue) setGauges() {
	evaluationsInFlight.WithLabelValues(q.name).Set(float64(q.running))
	evaluationsQueued.WithLabelValues(q.name).Set(float64(q.queued))
}
