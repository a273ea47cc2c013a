// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valuecache

import (
	"time"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// receive handles a result or an error of a query.
func (e *entry) receive(q *query.Query, result *query.Result, err error) {
	current, switched := e.current()
	if current != q {
		return
	}
	mq, ok := e.readQuery()
	if !ok {
		return
	}
	e.updating.Lock()
	e.newest = answer{query: q, result: result, err: err, metricQuery: mq}
	e.apply()
	e.updating.Unlock()
	if mq.Query != *q && e.cache.clock.Since(switched) >= q.Interval/minQueryTime {
		// The result was applied first, since the next one may be an interval away.
		e.subscribe(mq.Query)
	}
}

// apply updates the values from the newest answer. The caller holds updating.
func (e *entry) apply() {
	o := &e.newest
	var objects []string
	if e.Objects != nil {
		objects = e.Objects()
	}
	values, err := o.metricQuery.Values(o.result, o.err, objects...)
	if err != nil {
		e.fail(o.query, err)
		return
	}
	e.publish(values, o.query)
}

// minQueryTime is the divisor of the interval for which a query is kept before a result may
// change it: the query may change with each pod, and each change costs an evaluation.
const minQueryTime = 2

func (e *entry) current() (q *query.Query, since time.Time) {
	e.cache.mu.RLock()
	defer e.cache.mu.RUnlock()
	return e.query, e.switched
}

// staleIntervals and staleTime limit how long new watches get old values while the source fails;
// the longer one applies.
const (
	staleIntervals = 4
	staleTime      = time.Minute
)

// fail records an error of a query. A nil query means that the metric does not exist; then the
// values are removed, too.
func (e *entry) fail(q *query.Query, err error) {
	s := e.cache
	s.mu.Lock()
	if e.query != q {
		s.mu.Unlock()
		return
	}
	began := e.failure == nil
	e.failure = err
	var stale time.Duration
	if q != nil {
		stale = max(staleTime, staleIntervals*q.Interval)
	}
	if q == nil || (!e.answered.IsZero() && s.clock.Since(e.answered) > stale) {
		s.meter.points.Add(-float64(len(e.items)))
		e.items, e.evaluated, e.answered = nil, time.Time{}, time.Time{}
	}
	e.setReady()
	s.mu.Unlock()
	s.meter.fail(err)
	if began {
		s.log("A watched metric has no new values", e, "err", err)
	}
}

// publish stores values and publishes the new ones.
func (e *entry) publish(values *query.Values, q *query.Query) {
	s, next := e.cache, e.newItems(values)
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.mu.Lock()
	if e.query != q {
		s.mu.Unlock()
		return
	}
	now := uint64(max(0, s.clock.Since(s.began)))
	var news []stream.Item
	held := e.items
	// A subscription may have asked something else before whose evaluation was under way. Where the clock was set
	// back, all that comes is older by more.
	older := e.evaluated.Sub(values.Time)
	earlier := older > 0 && older < q.Interval
	for _, i := range next {
		for len(held) > 0 && held[0].name < i.name {
			held = held[1:]
		}
		if len(held) > 0 && held[0].name == i.name && held[0].holds(i.kept, earlier) {
			i.kept = held[0].kept
			continue
		}
		s.sequence = max(s.sequence+1, now)
		i.kept.sequence = s.sequence
		news = append(news, i)
	}
	s.meter.points.Add(float64(len(next) - len(e.items)))
	e.items, e.answered = next, s.clock.Now()
	if !earlier {
		e.evaluated = values.Time
	}
	recovered := e.failure != nil && values.SourceError == nil
	e.failure = nil
	if values.SourceError != nil { // not nil in an error, though the pointer is
		e.failure = values.SourceError
	}
	e.setReady()
	s.mu.Unlock()

	if values.SourceError != nil {
		s.meter.fail(values.SourceError)
	}
	if recovered {
		s.log("A watched metric has new values again", e)
	}
	if len(news) > 0 {
		s.meter.published.Add(float64(len(news)))
		s.observe(news)
	}
}

// newItems returns the items of existing objects, ordered by name.
func (e *entry) newItems(values *query.Values) []*item {
	items := make([]*item, 0, len(values.Items))
	for n := range values.Items {
		v := &values.Items[n]
		labels := v.Labels
		if e.Labels != nil {
			var there bool
			if labels, there = e.Labels(v.Object); !there {
				continue
			}
		}
		items = append(items, &item{name: v.Key(), labels: labels, kept: &kept{
			entry: e, point: Point{Value: *v, Window: values.Window, Fallback: values.SourceError != nil},
		}})
	}
	return items
}
