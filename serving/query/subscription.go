// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// minRetry is the minimum time between two evaluations of a failing query for its subscribers.
const minRetry = time.Second

// subscription receives the outcomes of a query.
type subscription struct {
	// mu is held while receive is called.
	mu      sync.Mutex
	stopped atomic.Bool
	// requester is the tenant of the request.
	requester string
	// version is that of the last outcome that receive was called with.
	version uint64
	receive func(*Result, error)
}

// notification is an outcome to send to a subscription.
type notification struct {
	subscription *subscription
	outcome      *outcome
}

// notify calls receive, unless it has received a newer outcome.
func (s *subscription) notify(o *outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped.Load() || o.version <= s.version {
		return
	}
	s.version = o.version
	s.receive(o.result, o.err)
}

// Subscribe implements Querier. Errors are EvaluationErrors; one that lasts is sent once per
// interval. receive may be called before Subscribe returns, and a running call may outlast
// stop. A running evaluation for an instant before since is not waited for.
func (v *Evaluator) Subscribe(q Query, since time.Time, receive func(*Result, error)) (stop func()) {
	source, known := v.sources(q.Source)
	q, requester := q.split()
	s := &subscription{receive: receive, requester: requester}
	v.mu.Lock()
	defer v.unlock()
	now := v.clock.Now()
	if v.closed {
		v.notifications = append(v.notifications, notification{s, &outcome{err: errShuttingDown(q, now), version: 1}})
		return func() {}
	}
	e := v.cache.entries[q]
	if e == nil {
		e = v.cache.add(q, requester, now)
	}
	v.cache.pin(e)
	if e.subscribers == nil {
		e.subscribers = map[*subscription]struct{}{}
		watchedQueries.Inc()
	}
	e.subscribers[s] = struct{}{}
	if !since.IsZero() && (e.outcome == nil || e.outcome.err != nil || e.outcome.result.Time.Before(since)) {
		e.replaces = true
	}
	v.refresh(e, source, known, requester, now)
	if e.outcome != nil && e.evaluation == nil {
		v.notifications = append(v.notifications, notification{s, e.outcome})
	}
	return func() {
		if !s.stopped.Swap(true) {
			v.unsubscribe(e, s)
		}
	}
}

func (v *Evaluator) unsubscribe(e *entry, s *subscription) {
	v.mu.Lock()
	defer v.unlock()
	delete(e.subscribers, s)
	if len(e.subscribers) > 0 {
		return
	}
	e.subscribers = nil
	watchedQueries.Dec()
	v.due.Remove(e)
	v.cache.unpin(e, v.clock.Now())
	if e.evaluation != nil {
		v.cancelUnused(e.evaluation)
	}
}

// evaluateDue evaluates the queries that are due for their subscribers, and returns when the
// next one is; zero if there is none.
func (v *Evaluator) evaluateDue() time.Time {
	for {
		v.mu.Lock()
		now := v.clock.Now()
		e, ok := v.due.Peek()
		if next := v.due.NextDue(); !ok || next.After(now) {
			v.mu.Unlock()
			return next
		}
		v.due.Remove(e)
		v.mu.Unlock()
		// Without the lock, as sources is a callback.
		source, known := v.sources(e.query.Source)
		v.mu.Lock()
		if len(e.subscribers) > 0 && !v.closed {
			v.refresh(e, source, known, v.requester(e), v.clock.Now())
		}
		v.unlock()
	}
}

// refresh evaluates a query with subscribers, of which requester is one, if its outcome is no longer
// valid, and schedules the next time.
func (v *Evaluator) refresh(e *entry, source Source, known bool, requester string, now time.Time) {
	e.lastUsed = now
	switch {
	case !known:
		v.failUnknownSource(e, now)
	case e.evaluation != nil && e.evaluation.source == source:
		v.moveQueued(e.evaluation, requester, now)
	case v.current(e, source, now) != nil && (!e.replaces || e.outcome.err != nil):
	default:
		v.evaluate(e, v.requester(e), source, now)
	}
	v.schedule(e, now)
}

// requester returns the tenant of the subscribers, of which there must be one, with the least work
// for the source.
func (v *Evaluator) requester(e *entry) string {
	var least *subscription
	q := v.queues[e.query.Source]
	for s := range e.subscribers {
		if least == nil || q != nil && q.load(s.requester) < q.load(least.requester) {
			least = s
		}
	}
	return least.requester
}

// schedule sets when a query with subscribers is due: when its next slot starts, or its
// failure is no longer shared.
func (v *Evaluator) schedule(e *entry, now time.Time) {
	if len(e.subscribers) == 0 {
		return
	}
	due := now.Add(untilNext(e.slots.Schedule, now))
	if e.evaluation == nil && e.outcome != nil && e.outcome.err != nil {
		retry := []time.Time{e.retryAt, now.Add(minRetry)}
		if q := v.queues[e.query.Source]; q != nil {
			retry = append(retry, q.retryAt(e.requester))
		}
		if at := slices.MaxFunc(retry, time.Time.Compare); at.Before(due) {
			due = at
		}
	}
	v.due.Put(e, due)
	v.wake.Set()
}

// SourcesChanged evaluates at once the queries with subscribers whose source was replaced or
// removed. Without it they would wait for their next slot.
func (v *Evaluator) SourcesChanged() {
	v.mu.Lock()
	sources := map[string]Source{}
	for q := range v.cache.entries {
		sources[q.Source] = nil
	}
	v.mu.Unlock()
	for name := range sources {
		sources[name], _ = v.sources(name)
	}
	v.mu.Lock()
	defer v.unlock()
	now := v.clock.Now()
	for e := range v.due.All() {
		source, seen := sources[e.query.Source]
		if seen && (source != e.source || e.evaluation != nil && e.evaluation.source != source) {
			v.due.Put(e, now)
		}
	}
	v.wake.Set()
}
