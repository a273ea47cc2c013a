// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valuecache

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// Subscription describes a watched metric. The functions of subscriptions with the same ID must be
// equivalent.
type Subscription struct {
	// ID identifies the subscription. It has all that Read, Labels and Event depend on.
	ID string
	// Read returns the current query of the metric, or why there is none. A zero Query means that
	// there are no values. It is called with each result, so it should be fast.
	Read func() (query.MetricQuery, error)
	// Labels returns the labels by which watches select an object, or false if the object does
	// not exist and its value is to be ignored. If it is nil, watches select by the labels of the
	// values.
	Labels func(object string) (map[string]string, bool)
	// Objects returns the names of the wanted objects in order. It is nil if the query names the
	// object or the values describe none.
	Objects func() []string
	// Event returns the object of a value's event, in the API group's internal version. It is not called for a value
	// that another implementation answered.
	Event func(Point) runtime.Object
}

// Point is a data point of a subscription.
type Point struct {
	query.Value
	// Window is zero for an instantaneous value.
	Window time.Duration
	// Fallback says that the value is the configured fallback.
	Fallback bool
}

// entry has the newest values of one or more equal subscriptions.
type entry struct {
	Subscription
	cache *Cache

	// updating guards newest and is held while it is applied, so that an older answer cannot
	// replace a newer one.
	updating sync.Mutex
	newest   answer

	// The fields below are guarded by cache.mu.

	// ready is closed when the first result or error of the query is there.
	ready chan struct{}
	users int
	// released is when the last subscriber released the entry.
	released time.Time
	ended    bool
	// query is what is evaluated, and stop ends that; both are nil if nothing is.
	query *query.Query
	stop  func()
	// switched is when the query last changed.
	switched time.Time
	// items are ordered by name. The slice is replaced as a whole.
	items []*item
	// evaluated is the instant of the newest result, or since when there are no values; answered
	// is when the result was received, or zero.
	evaluated, answered time.Time
	// failure is why there are no newer values, or nil.
	failure error
}

// answer is a result or an error of a query, and how it was read.
type answer struct {
	query       *query.Query
	result      *query.Result
	err         error
	metricQuery query.MetricQuery
}

// read subscribes to the current query. If only its interpretation has changed, the newest result
// is applied again.
func (e *entry) read() {
	if mq, ok := e.readQuery(); ok {
		e.subscribe(mq.Query)
		e.reapply(&mq)
	}
}

// readQuery returns the current query, or false if there is none and the entry was updated to
// that.
func (e *entry) readQuery() (query.MetricQuery, bool) {
	mq, err := e.Read()
	switch {
	case err != nil:
		e.unsubscribe()
		e.fail(nil, err)
	case mq.Query == query.Query{}:
		e.clear()
	default:
		return mq, true
	}
	return mq, false
}

// reapply applies the newest answer again if its interpretation has changed.
func (e *entry) reapply(mq *query.MetricQuery) {
	e.updating.Lock()
	defer e.updating.Unlock()
	if q, _ := e.current(); q != nil && q == e.newest.query && *q == mq.Query && !e.newest.metricQuery.Equal(mq) {
		e.newest.metricQuery = *mq
		e.apply()
	}
}

// subscribe subscribes to a query in place of another one.
func (e *entry) subscribe(q query.Query) {
	s := e.cache
	s.mu.Lock()
	if e.ended || (e.query != nil && *e.query == q) {
		s.mu.Unlock()
		return
	}
	before, current := e.stop, &q
	since := e.evaluated
	e.query, e.stop, e.switched = current, nil, s.clock.Now()
	if e.answered.IsZero() {
		// The failure was of another query.
		e.failure = nil
		e.resetReady()
	}
	s.mu.Unlock()
	if before != nil {
		before()
	}
	// Without the lock, since a cached result is delivered at once. since keeps the values from
	// being older than the current ones, as the intervals of the two queries start at other times.
	stop := s.querier.Subscribe(q, since, func(result *query.Result, err error) { e.receive(current, result, err) })
	s.mu.Lock()
	superseded := e.query != current
	if !superseded {
		e.stop = stop
	}
	s.mu.Unlock()
	if superseded {
		stop()
	}
}

// unsubscribe ends the subscription to the query.
func (e *entry) unsubscribe() {
	e.cache.mu.Lock()
	stop := e.stop
	e.query, e.stop = nil, nil
	e.cache.mu.Unlock()
	e.updating.Lock()
	e.newest = answer{}
	e.updating.Unlock()
	if stop != nil {
		stop()
	}
}

// clear removes the query and the values until the subscription is read the next time.
func (e *entry) clear() {
	e.unsubscribe()
	s := e.cache
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.query != nil || e.ended {
		return
	}
	s.meter.points.Add(-float64(len(e.items)))
	e.items, e.evaluated, e.answered, e.failure = nil, s.clock.Now(), time.Time{}, nil
	e.setReady()
}

// end removes the entry if it had no subscribers for the linger time, or anyway. It reports
// whether it did.
func (e *entry) end(anyway bool) bool {
	s := e.cache
	s.mu.Lock()
	if !anyway && (e.users > 0 || s.clock.Since(e.released) < linger) {
		s.mu.Unlock()
		return false
	}
	e.ended = true
	// A result that arrives now is ignored.
	e.query = nil
	if s.entries[e.ID] == e {
		delete(s.entries, e.ID)
		s.meter.entries.Set(float64(len(s.entries)))
		s.meter.points.Add(-float64(len(e.items)))
		e.items = nil
	}
	s.mu.Unlock()
	e.unsubscribe()
	return true
}

// idle reports whether there is no query, because Read failed or returned none.
func (e *entry) idle() bool {
	e.cache.mu.RLock()
	defer e.cache.mu.RUnlock()
	return e.query == nil
}

// resetReady makes new subscribers wait. The caller holds cache.mu.
func (e *entry) resetReady() {
	select {
	case <-e.ready:
		e.ready = make(chan struct{})
	default:
	}
}

// setReady unblocks waiting subscribers. The caller holds cache.mu.
func (e *entry) setReady() {
	select {
	case <-e.ready:
	default:
		close(e.ready)
	}
}

// wait blocks until there is a result, and returns the error if there are no values.
func (e *entry) wait(ctx context.Context) error {
	e.cache.mu.RLock()
	ready := e.ready
	e.cache.mu.RUnlock()
	select {
	case <-ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	e.cache.mu.RLock()
	defer e.cache.mu.RUnlock()
	if e.answered.IsZero() && e.failure != nil {
		return e.failure
	}
	return nil
}
