// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valuecache

import (
	"errors"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// receive takes in what came of a question.
func (f *feed) receive(q *query.Query, answer *query.Result, err error) {
	asks, switched := f.asks()
	if asks != q {
		return
	}
	mq, readErr := f.Read()
	switch {
	case readErr != nil:
		f.unfollow()
		f.fail(nil, readErr)
		return
	case mq.Query == query.Query{}:
		f.rest()
		return
	}
	f.taking.Lock()
	f.newest = outcome{question: q, answer: answer, err: err, metricQuery: mq}
	f.takeIn()
	f.taking.Unlock()
	if mq.Query != *q && f.store.clock.Since(switched) >= q.Interval/settled {
		// The answer counted all the same: the next one may be an interval away.
		f.follow(mq.Query)
	}
}

// takeIn reads the newest outcome. The caller holds taking.
func (f *feed) takeIn() {
	o := &f.newest
	var objects []string
	if f.Objects != nil {
		objects = f.Objects()
	}
	values, err := o.metricQuery.Values(o.answer, o.err, objects...)
	if err != nil {
		f.fail(o.question, err)
		return
	}
	f.take(values, o.question)
}

// settled is the part of its interval for which a question is followed, at least, before
// an answer leads to another: what is asked may change with each pod, and each change
// costs an evaluation.
const settled = 2

func (f *feed) asks() (q *query.Query, since time.Time) {
	f.store.mu.RLock()
	defer f.store.mu.RUnlock()
	return f.question, f.switched
}

// staleIntervals and staleTime say for how long values are served to new watches while
// the source fails: whichever is longer.
const (
	staleIntervals = 4
	staleTime      = time.Minute
)

// fail takes in that there are no new values of a question. Where there is none, since
// there is no metric any more, there are no old values either.
func (f *feed) fail(q *query.Query, err error) {
	s := f.store
	s.mu.Lock()
	if f.question != q {
		s.mu.Unlock()
		return
	}
	began := f.failure == nil
	f.failure = err
	var stale time.Duration
	if q != nil {
		stale = max(staleTime, staleIntervals*q.Interval)
	}
	if q == nil || (!f.answered.IsZero() && s.clock.Since(f.answered) > stale) {
		s.meter.points.Add(-float64(len(f.items)))
		f.items, f.evaluated, f.answered = nil, time.Time{}, time.Time{}
	}
	f.settle()
	s.mu.Unlock()
	s.meter.fail(err)
	if began {
		s.log("A watched metric has no new values", f, "err", err)
	}
}

// take takes in values, and publishes those that are news.
func (f *feed) take(values *query.Values, q *query.Query) {
	s, next := f.store, f.join(values)
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.mu.Lock()
	if f.question != q {
		s.mu.Unlock()
		return
	}
	now := uint64(max(0, s.clock.Since(s.began)))
	var news []stream.Item
	held := f.items
	for _, i := range next {
		for len(held) > 0 && held[0].name < i.name {
			held = held[1:]
		}
		if len(held) > 0 && held[0].name == i.name && held[0].holds(i.kept, q.Interval) {
			i.kept = held[0].kept
			continue
		}
		s.sequence = max(s.sequence+1, now)
		i.kept.sequence = s.sequence
		news = append(news, i)
	}
	s.meter.points.Add(float64(len(next) - len(f.items)))
	f.items, f.evaluated, f.answered = next, values.Time, s.clock.Now()
	recovered := f.failure != nil && values.SourceError == nil
	f.failure = nil
	if values.SourceError != nil {
		f.failure = values.SourceError
	}
	f.settle()
	s.mu.Unlock()

	if values.SourceError != nil {
		s.meter.fail(values.SourceError)
	}
	if recovered {
		s.log("A watched metric has new values again", f)
	}
	if len(news) > 0 {
		s.meter.published.Add(float64(len(news)))
		s.observe(news)
	}
}

// join makes items of values, ordered by name: of objects that are there.
func (f *feed) join(values *query.Values) []*item {
	items := make([]*item, 0, len(values.Items))
	for n := range values.Items {
		v := &values.Items[n]
		labels := v.Labels
		if f.Labels != nil {
			var there bool
			if labels, there = f.Labels(v.Object); !there {
				continue
			}
		}
		items = append(items, &item{name: v.Key(), labels: labels, kept: &kept{
			feed: f, point: Point{Value: *v, Window: values.Window, Fallback: values.SourceError != nil},
		}})
	}
	return items
}

// reasonOf is the reason of a failure, as a metric label's value.
func reasonOf(err error) string {
	var failure *query.Failure
	if errors.As(err, &failure) {
		return string(failure.Reason)
	}
	return "NotRead"
}
