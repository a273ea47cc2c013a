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

// Feed is a metric as it is watched. The functions of feeds of one ID do the same.
type Feed struct {
	// ID tells feeds apart. It has all that Read, Labels and Event depend on.
	ID string
	// Read says how the values are read now, or why they cannot be. A metric query without
	// a question means that there is nothing to ask, and no value. It is called with
	// each answer, so it should be fast.
	Read func() (query.MetricQuery, error)
	// Labels returns the labels by which watches select an object, or false where
	// there is no such object, whose value then does not count. Where it is nil,
	// watches select by the labels of the values.
	Labels func(object string) (map[string]string, bool)
	// Objects returns the names of the objects whose values are wanted, ordered; nil
	// where the metric query names the object, or values describe none.
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
	question *query.Query
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
	question    *query.Query
	answer      *query.Result
	err         error
	metricQuery query.MetricQuery
}

// read follows what the feed asks now. Where that is what it asked before, but is read
// in another way, that holds for the newest answer, too.
func (f *feed) read() {
	mq, err := f.Read()
	switch {
	case err != nil:
		f.unfollow()
		f.fail(nil, err)
	case mq.Query == query.Query{}:
		f.rest()
	default:
		f.follow(mq.Query)
		f.reread(&mq)
	}
}

// reread takes in the newest outcome once more where it is read in another way now.
func (f *feed) reread(mq *query.MetricQuery) {
	f.taking.Lock()
	defer f.taking.Unlock()
	if q, _ := f.asks(); q != nil && q == f.newest.question && *q == mq.Query && !f.newest.metricQuery.Equal(mq) {
		f.newest.metricQuery = *mq
		f.takeIn()
	}
}

// follow has a question followed, instead of another one.
func (f *feed) follow(q query.Query) {
	s := f.store
	s.mu.Lock()
	if f.ended || (f.question != nil && *f.question == q) {
		s.mu.Unlock()
		return
	}
	before, current := f.stop, &q
	since := f.evaluated
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
	// Not under the lock: what is known already is told at once. Its slots begin at other
	// times: its values must not seem older than those at hand.
	stop := s.querier.Subscribe(q, since, func(answer *query.Result, err error) { f.receive(current, answer, err) })
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
	// An answer that comes at this moment is not taken in any more.
	f.question = nil
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
