// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valuecache

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// Store holds the newest values of the feeds that are followed.
type Store struct {
	clock   clock.WithTicker
	querier query.Querier
	// began is when the store was made; numbers of points count from then.
	began time.Time
	meter *meter
	lines *rate.Limiter

	// publishing lets one feed at a time store points and tell of them, so that the
	// observer hears of them in the order of their numbers.
	publishing sync.Mutex
	observe    func([]stream.Item)

	// mu guards what follows and the feeds' fields that say so.
	mu     sync.RWMutex
	logger klog.Logger
	feeds  map[string]*feed
	// sequence is the number of the newest point.
	sequence uint64
}

var _ stream.Source = &Store{}

// NewStore returns an empty store. The name tells stores apart in metrics and logs;
// it is the API group.
func NewStore(name string, c clock.WithTicker, querier query.Querier) *Store {
	return &Store{
		clock: c, querier: querier, began: c.Now(), meter: newMeter(name), lines: rate.NewLimiter(logRate, logBurst),
		logger: klog.Background(), feeds: map[string]*feed{}, observe: func([]stream.Item) {},
	}
}

// Observe has f called with new data points after they became visible: in the order
// of their numbers, one call at a time. It is called before the first Follow.
func (s *Store) Observe(f func([]stream.Item)) {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.observe = f
}

const (
	// tick is how often the store looks for feeds that nobody watches any more, and
	// for those whose metric does not exist.
	tick = 5 * time.Second
	// linger is how long a feed stays that nobody watches: clients that connect anew
	// find the values they know.
	linger = 30 * time.Second
)

// Run keeps the store's time until the context ends; then nothing is followed any more.
func (s *Store) Run(ctx context.Context) {
	s.mu.Lock()
	s.logger = klog.FromContext(ctx)
	s.mu.Unlock()
	ticker := s.clock.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			for _, f := range s.all() {
				f.end(true)
			}
			return
		case <-ticker.C():
			for _, f := range s.all() {
				if !f.end(false) && f.unread() {
					f.read()
				}
			}
		}
	}
}

// Refresh reads all feeds anew, as after a change of rules; otherwise that is done with the next
// answer of each.
func (s *Store) Refresh() {
	for _, f := range s.all() {
		f.read()
	}
}

func (s *Store) all() []*feed {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.feeds))
}

// Follow has the values of a feed held until release is called, which may be more
// than once. It returns when there are values, even if these are none, or with an
// error: that of Feed.Read, or of the source where there is nothing in its place.
func (s *Store) Follow(ctx context.Context, of Feed) (release func(), err error) {
	f := s.enter(of)
	release = sync.OnceFunc(func() { s.leave(f) })
	f.read()
	if err := f.wait(ctx); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

func (s *Store) enter(of Feed) *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.feeds[of.ID]
	if f == nil {
		f = &feed{Feed: of, store: s, known: make(chan struct{})}
		s.feeds[of.ID] = f
		s.meter.feeds.Set(float64(len(s.feeds)))
	}
	f.users++
	return f
}

func (s *Store) leave(f *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.users--
	f.left = s.clock.Now()
}

// ResourceVersion is that of a list of a feed's values, and of its bookmarks: the
// newest evaluation in decimal milliseconds; "1" before there is one.
func (s *Store) ResourceVersion(id string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	f := s.feeds[id]
	if f == nil || f.evaluated.IsZero() {
		return "1"
	}
	return strconv.FormatInt(f.evaluated.UnixMilli(), 10)
}

// Sequence implements stream.Source.
func (s *Store) Sequence() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.sequence
}

// Stored implements stream.Source.
func (s *Store) Stored(sequence uint64) time.Time { return s.began.Add(time.Duration(sequence)) }

// Get implements stream.Source.
func (s *Store) Get(key samplestore.Key) stream.Item {
	items := s.items(key.Namespace)
	if i, found := slices.BinarySearchFunc(items, key.Name, (*item).compareName); found {
		return items[i]
	}
	return nil
}

// Select implements stream.Source.
func (s *Store) Select(namespace string, _ []samplestore.Label, after samplestore.Key) iter.Seq[stream.Item] {
	return func(yield func(stream.Item) bool) {
		ids := []string{namespace}
		if namespace == "" {
			ids = s.ids()
		}
		for _, id := range ids {
			if id < after.Namespace {
				continue
			}
			items := s.items(id)
			if id == after.Namespace {
				i, found := slices.BinarySearchFunc(items, after.Name, (*item).compareName)
				if found {
					i++
				}
				items = items[i:]
			}
			for _, i := range items {
				if !yield(i) {
					return
				}
			}
		}
	}
}

func (s *Store) ids() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.feeds))
}

// items returns those of a feed, ordered by name. The slice must not be changed.
func (s *Store) items(id string) []*item {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if f := s.feeds[id]; f != nil {
		return f.items
	}
	return nil
}
