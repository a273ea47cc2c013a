// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package answers

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// Feed is a metric as it is watched. The functions of feeds of one ID do the same.
type Feed struct {
	// ID tells feeds apart. It has all that Read, Labels and Event depend on.
	ID string
	// Read says how the values are read now, or why they cannot be. A reading without
	// a question means that there is nothing to ask, and no value. It is called with
	// each answer, so it should be fast.
	Read func() (query.Reading, error)
	// Labels returns the labels by which watches select an object, or false where
	// there is no such object, whose value then does not count. Where it is nil,
	// watches select by the labels of the values.
	Labels func(object string) (map[string]string, bool)
	// Objects returns the names of the objects whose values are wanted, ordered; nil
	// where the reading names the object, or values describe none.
	Objects func() []string
	// Event makes the object of a value's event, in the API group's internal version.
	Event func(Point) runtime.Object
}

// Point is a data point of a feed.
type Point struct {
	query.Value
	// Window over which the value looks back; zero for an instantaneous one.
	Window time.Duration
	// Fallback says that the value stands in for one that the source did not give.
	Fallback bool
}

// feed is a Feed that is followed.
type feed struct {
	Feed
	store *Store

	// newest is guarded by taking, which is held while an outcome is taken in: one that
	// is read again must not replace a newer one.
	taking sync.Mutex
	newest outcome

	// These are guarded by store.mu.

	// known is closed when it is known what comes of the question.
	known chan struct{}
	users int
	// left is when the newest watch was released.
	left  time.Time
	ended bool
	// question is what is followed, and stop ends that; nil where nothing is.
	question *query.Question
	stop     func()
	// switched is when another question was followed last.
	switched time.Time
	// items are ordered by name. The slice is replaced as a whole.
	items []*item
	// evaluated is the instant of the newest answer, or as of which there was nothing to
	// ask; answered is when the answer came, and zero where there is none.
	evaluated, answered time.Time
	// failure is why there are no newer values; nil where the newest are good.
	failure error
}

// outcome is what came of a question, and how it was read.
type outcome struct {
	question *query.Question
	answer   *query.Answer
	err      error
	reading  query.Reading
}

// read follows what the feed asks now. Where that is what it asked before, but is read
// in another way, that holds for the newest answer, too.
func (f *feed) read() {
	reading, err := f.Read()
	switch {
	case err != nil:
		f.unfollow()
		f.fail(nil, err)
	case reading.Question == query.Question{}:
		f.rest()
	default:
		f.follow(reading.Question)
		f.reread(&reading)
	}
}

// reread takes in the newest outcome once more where it is read in another way now.
func (f *feed) reread(reading *query.Reading) {
	f.taking.Lock()
	defer f.taking.Unlock()
	if q, _ := f.asks(); q != nil && q == f.newest.question && *q == reading.Question && !reflect.DeepEqual(f.newest.reading, *reading) {
		f.newest.reading = *reading
		f.takeIn()
	}
}

// follow has a question followed, instead of another one.
func (f *feed) follow(q query.Question) {
	s := f.store
	s.mu.Lock()
	if f.ended || (f.question != nil && *f.question == q) {
		s.mu.Unlock()
		return
	}
	before, current := f.stop, &q
	f.question, f.stop, f.switched = current, nil, s.clock.Now()
	if f.answered.IsZero() {
		// What failed before says nothing of this one.
		f.failure = nil
		f.renew()
	}
	s.mu.Unlock()
	if before != nil {
		before()
	}
	// Not under the lock: what is known already is told at once.
	stop := s.asker.Follow(q, func(answer *query.Answer, err error) { f.receive(current, answer, err) })
	s.mu.Lock()
	superseded := f.question != current
	if !superseded {
		f.stop = stop
	}
	s.mu.Unlock()
	if superseded {
		stop()
	}
}

// unfollow ends the following of a question.
func (f *feed) unfollow() {
	f.store.mu.Lock()
	stop := f.stop
	f.question, f.stop = nil, nil
	f.store.mu.Unlock()
	f.taking.Lock()
	f.newest = outcome{}
	f.taking.Unlock()
	if stop != nil {
		stop()
	}
}

// rest takes in that there is nothing to ask, and so no value, until the feed is read
// the next time.
func (f *feed) rest() {
	f.unfollow()
	s := f.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.question != nil || f.ended {
		return
	}
	s.meter.points.Add(-float64(len(f.items)))
	f.items, f.evaluated, f.answered, f.failure = nil, s.clock.Now(), time.Time{}, nil
	f.settle()
}

// end ends the feed where nobody has watched it for a while, or in any case. It
// returns whether it has ended.
func (f *feed) end(anyway bool) bool {
	s := f.store
	s.mu.Lock()
	if !anyway && (f.users > 0 || s.clock.Since(f.left) < linger) {
		s.mu.Unlock()
		return false
	}
	f.ended = true
	if s.feeds[f.ID] == f {
		delete(s.feeds, f.ID)
		s.meter.feeds.Set(float64(len(s.feeds)))
		s.meter.points.Add(-float64(len(f.items)))
		f.items = nil
	}
	s.mu.Unlock()
	f.unfollow()
	return true
}

// unread says that nothing is followed, since Read failed or there is nothing to ask.
func (f *feed) unread() bool {
	f.store.mu.RLock()
	defer f.store.mu.RUnlock()
	return f.question == nil
}

// renew makes those wait who come from now on. The caller holds store.mu.
func (f *feed) renew() {
	select {
	case <-f.known:
		f.known = make(chan struct{})
	default:
	}
}

// settle lets go those who wait. The caller holds store.mu.
func (f *feed) settle() {
	select {
	case <-f.known:
	default:
		close(f.known)
	}
}

// wait waits until there are values, and returns why there are none.
func (f *feed) wait(ctx context.Context) error {
	f.store.mu.RLock()
	known := f.known
	f.store.mu.RUnlock()
	select {
	case <-known:
	case <-ctx.Done():
		return ctx.Err()
	}
	f.store.mu.RLock()
	defer f.store.mu.RUnlock()
	if f.answered.IsZero() && f.failure != nil {
		return f.failure
	}
	return nil
}

// receive takes in what came of a question.
func (f *feed) receive(q *query.Question, answer *query.Answer, err error) {
	asks, switched := f.asks()
	if asks != q {
		return
	}
	reading, readErr := f.Read()
	switch {
	case readErr != nil:
		f.unfollow()
		f.fail(nil, readErr)
		return
	case reading.Question == query.Question{}:
		f.rest()
		return
	}
	f.taking.Lock()
	f.newest = outcome{question: q, answer: answer, err: err, reading: reading}
	f.takeIn()
	f.taking.Unlock()
	if reading.Question != *q && f.store.clock.Since(switched) >= q.Interval/settled {
		// The answer counted all the same: the next one may be an interval away.
		f.follow(reading.Question)
	}
}

// takeIn reads the newest outcome. The caller holds taking.
func (f *feed) takeIn() {
	o := &f.newest
	var objects []string
	if f.Objects != nil {
		objects = f.Objects()
	}
	values, err := o.reading.Values(o.answer, o.err, objects...)
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

func (f *feed) asks() (q *query.Question, since time.Time) {
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
func (f *feed) fail(q *query.Question, err error) {
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
func (f *feed) take(values *query.Values, q *query.Question) {
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
	recovered := f.failure != nil && values.Outage == nil
	f.failure = nil
	if values.Outage != nil {
		f.failure = values.Outage
	}
	f.settle()
	s.mu.Unlock()

	if values.Outage != nil {
		s.meter.fail(values.Outage)
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
			feed: f, point: Point{Value: *v, Window: values.Window, Fallback: values.Outage != nil},
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
