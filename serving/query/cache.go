// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"container/list"
	"fmt"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/internal/fairshare"
	"github.com/metricsbackend/metrics-backend-operator/serving/delayqueue"
)

// cache holds an entry for each query that was recently requested or has subscribers,
// within limits that tenants share. The Evaluator's mutex guards it.
type cache struct {
	limits  *limits
	entries map[Query]*entry
	batches map[batchKey]*batch
	// tenants has the tenants with entries, and total the sum of their usage.
	tenants map[string]*tenantUsage
	total   usage
}

// usage counts cached queries, bytes of their expressions and results, and waiting requests.
type usage struct{ queries, bytes, waiting int }

// tenantUsage is the usage of one tenant: of the queries that it was the first to request, and of
// requests from it.
type tenantUsage struct {
	tenant string
	usage
	// lru has the entries without subscribers, the least recently used one first.
	lru list.List
}

// entry is the state of a query.
type entry struct {
	query Query
	slots *slots
	// failedAlone says that the last evaluation failed, and was of this query alone.
	failedAlone bool
	// tenant is that of the query, or else of its first request.
	tenant *tenantUsage
	// requester is the tenant of the last evaluation: that of the query, or of the request.
	requester string

	// lru is the element in the tenant's lru; nil while there are subscribers.
	lru      *list.Element
	lastUsed time.Time

	subscribers map[*subscription]struct{}
	// replaces says that the next evaluation is as of now, not of the slot's start: the query
	// replaces another one whose last result may be newer.
	replaces bool
	// Entry is when the evaluation for subscribers is due.
	delayqueue.Entry

	// evaluation is the running or queued one, if any.
	evaluation *evaluation

	// outcome is the newest one, and source is where it is from.
	outcome *outcome
	source  Source
	// lastResult is kept while later evaluations fail.
	lastResult *Result
	// retryAt is until when a failure is shared; zero for one that is not.
	retryAt time.Time
	// attempts counts the evaluations that failed in a row.
	attempts int
	// failedFor is the tenant of the first failure since the source last answered the query, nil for
	// none: one query that fails several requesters is no fault of the source.
	failedFor any
	// failedIntervals counts the slots in a row in which the query failed; failedSlot
	// is the last one.
	failedIntervals int
	failedSlot      int64
	// lastProbe is when the query was last the probe of an open circuitBreaker.
	lastProbe time.Time
}

// outcome is the result or error of a query's newest evaluation. It is immutable.
type outcome struct {
	result *Result
	err    error
	slot   int64
	// until is when a result that no client waited for expires; zero for others, which expire
	// with their slot.
	until time.Time
	// version counts the outcomes of the query.
	version uint64
}

// inUse reports whether the entry cannot be evicted.
func (e *entry) inUse() bool { return len(e.subscribers) > 0 || e.evaluation != nil }

// evaluationError returns the error of the query for a failure; the entry is nil if it is not cached.
func (e *entry) evaluationError(failure *Failure, now time.Time) *EvaluationError {
	if e == nil {
		return &EvaluationError{Failure: failure, Time: now}
	}
	return &EvaluationError{Failure: failure, FailedIntervals: e.failedIntervals, Time: now, LastResult: e.lastResult}
}

// addWithinLimits adds the entry of a requested query. It evicts others for that, and fails if that
// is not enough.
func (c *cache) addWithinLimits(q Query, requester string, now time.Time) (*entry, *Failure) {
	for {
		own := c.usage(requester)
		var measure func(usage) int
		switch {
		case !fairshare.Allows(own.queries, c.total.queries, 1, c.limits.maxQueries):
			measure = func(u usage) int { return u.queries }
		case !fairshare.Allows(own.bytes, c.total.bytes, q.size(), c.limits.maxCachedBytes):
			measure = func(u usage) int { return u.bytes }
		default:
			return c.add(q, requester, now), nil
		}
		if !c.evict(measure, measure(own), nil) {
			return nil, &Failure{Source: q.Source, Reason: ReasonOverloaded, Message: fmt.Sprintf(
				"this server has %d cached queries of %d bytes, %d of them with %d bytes of %s, that are watched or being evaluated: use fewer different metrics, shorter selectors and smaller results",
				c.total.queries, c.total.bytes, own.queries, own.bytes, describeTenant(requester))}
		}
	}
}

// usage returns that of a tenant.
func (c *cache) usage(tenant string) (u usage) {
	if t := c.tenants[tenant]; t != nil {
		u = t.usage
	}
	return u
}

// getOrAddTenant returns the usage of a tenant. The caller must add to it with addUsage, which
// removes a tenant whose usage becomes zero.
func (c *cache) getOrAddTenant(name string) *tenantUsage {
	t := c.tenants[name]
	if t == nil {
		t = &tenantUsage{tenant: name}
		c.tenants[name] = t
	}
	return t
}

// add adds the entry of a query, whatever the limits.
func (c *cache) add(q Query, requester string, now time.Time) *entry {
	t := c.getOrAddTenant(requester)
	e := &entry{query: q, slots: newSlots(q), tenant: t, requester: requester, lastUsed: now}
	c.entries[q] = e
	e.lru = t.lru.PushBack(e)
	c.addToBatch(e)
	c.addUsage(t, usage{queries: 1, bytes: q.size()})
	return e
}

func (c *cache) remove(e *entry) {
	c.dropResult(e)
	c.pin(e)
	delete(c.entries, e.query)
	c.removeFromBatch(e)
	c.addUsage(e.tenant, usage{queries: -1, bytes: -e.query.size()})
}

func (c *cache) touch(e *entry, now time.Time) {
	e.lastUsed = now
	if e.lru != nil {
		e.tenant.lru.MoveToBack(e.lru)
	}
}

// pin takes an entry that gets a subscriber, or is removed, out of the lru of its tenant, so that
// it is not evicted. It does nothing if the entry is pinned.
func (c *cache) pin(e *entry) {
	if e.lru != nil {
		e.tenant.lru.Remove(e.lru)
		e.lru = nil
	}
}

// unpin puts an entry whose last subscriber has left back into the lru, as the most recently used
// one, unless it was removed. The entry must be pinned.
func (c *cache) unpin(e *entry, now time.Time) {
	if c.entries[e.query] == e {
		e.lastUsed = now
		e.lru = e.tenant.lru.PushBack(e)
	}
}

// addUsage adds to the usage of a tenant, and removes the tenant if nothing is left of it. Numbers
// are negative for what the caller no longer uses.
func (c *cache) addUsage(t *tenantUsage, more usage) {
	for _, u := range []*usage{&t.usage, &c.total} {
		u.queries += more.queries
		u.bytes += more.bytes
		u.waiting += more.waiting
	}
	if t.usage == (usage{}) {
		delete(c.tenants, t.tenant)
	}
	cachedQueries.Set(float64(c.total.queries))
	cachedBytes.Set(float64(c.total.bytes))
}

// setResult makes a result the last one of its query, or returns why it cannot be cached.
func (c *cache) setResult(e *entry, result *Result) *Failure {
	more := result.Bytes
	if e.lastResult != nil {
		more -= e.lastResult.Bytes
	}
	for more > 0 && !fairshare.Allows(e.tenant.bytes, c.total.bytes, more, c.limits.maxCachedBytes) {
		if !c.evict(func(u usage) int { return u.bytes }, e.tenant.bytes, e) {
			return &Failure{Source: e.query.Source, Reason: ReasonTooLarge, Message: fmt.Sprintf(
				"the cached queries of this server and their results have %d bytes, %d of them of %s, and with the %d of this one fewer than that would be left to others of %d: aggregate in the query, and keep fewer labels",
				c.total.bytes, e.tenant.bytes, describeTenant(e.tenant.tenant), result.Bytes, c.limits.maxCachedBytes)}
		}
	}
	c.addUsage(e.tenant, usage{bytes: more})
	e.lastResult = result
	return nil
}

func (c *cache) dropResult(e *entry) {
	if e.lastResult != nil {
		c.addUsage(e.tenant, usage{bytes: -e.lastResult.Bytes})
		e.lastResult = nil
	}
}

// evict removes an entry, but not except, of the tenant with the highest usage by a measure,
// which is at least own, the usage of the tenant that needs space. It reports whether there
// was one.
func (c *cache) evict(measure func(usage) int, own int, except *entry) bool {
	var victim *entry
	most := own
	for _, t := range c.tenants {
		if n := measure(t.usage); n > 0 && n >= most {
			for el := t.lru.Front(); el != nil; el = el.Next() {
				if e := el.Value.(*entry); e != except && !e.inUse() {
					victim, most = e, n
					break
				}
			}
		}
	}
	if victim != nil {
		c.remove(victim)
	}
	return victim != nil
}

// expire removes entries that are no longer used, and last results that are too old to be
// used as a fallback.
func (c *cache) expire(now time.Time) {
	for _, e := range c.entries {
		switch {
		case !e.inUse() && now.Sub(e.lastUsed) >= max(idleTime, 4*e.slots.Interval):
			c.remove(e)
		case e.lastResult != nil && e.outcome.err != nil && now.Sub(e.lastResult.Time) > maxResultAge:
			c.dropResult(e)
		}
	}
}

// describeTenant returns a tenant's name for messages.
func describeTenant(tenant string) string {
	if tenant == "" {
		return "the whole cluster"
	}
	return fmt.Sprintf("namespace %q", tenant)
}
