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

	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// Cache holds the newest values of subscribed metrics.
type Cache struct {
	clock   clock.WithTicker
	querier query.Querier
	// began is when the cache was created; the numbers of points are nanoseconds since then.
	began time.Time
	meter *meter
	lines *rate.Limiter

	// publishing serializes storing and publishing, so that the observer gets points in the order of
	// their numbers.
	publishing sync.Mutex
	observe    func([]stream.Item)

	// mu guards what follows and the fields of entries that say so.
	mu      sync.RWMutex
	logger  klog.Logger
	entries map[string]*entry
	// sequence is the number of the newest point.
	sequence uint64
}

var _ stream.Source = &Cache{}

// NewCache returns an empty cache. The name identifies it in metrics and logs;
// it is the API group.
func NewCache(name string, c clock.WithTicker, querier query.Querier) *Cache {
	return &Cache{
		clock: c, querier: querier, began: c.Now(), meter: newMeter(name), lines: rate.NewLimiter(logRate, logBurst),
		logger: klog.Background(), entries: map[string]*entry{}, observe: func([]stream.Item) {},
	}
}

// Observe has f called with new data points after they became visible: in the order
// of their numbers, one call at a time. It is called before the first Follow.
func (s *Cache) Observe(f func([]stream.Item)) {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.observe = f
}

const (
	// tick is how often entries without subscribers are removed, and those without a metric are
	// read again.
	tick = 5 * time.Second
	// linger is how long an entry stays without subscribers, so that clients that reconnect find
	// its values.
	linger = 30 * time.Second
)

// Run maintains the entries until the context ends, and then removes them.
func (s *Cache) Run(ctx context.Context) {
	s.mu.Lock()
	s.logger = klog.FromContext(ctx)
	s.mu.Unlock()
	wake.Every(ctx, s.clock, tick, func() {
		for _, f := range s.all() {
			if !f.end(false) && f.idle() {
				f.read()
			}
		}
	})
	for _, f := range s.all() {
		f.end(true)
	}
}

// Refresh reads all subscriptions again after a change of rules. Without it that happens with the
// next result of each.
func (s *Cache) Refresh() {
	for _, f := range s.all() {
		f.read()
	}
}

func (s *Cache) all() []*entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.entries))
}

// Subscribe keeps the values of a metric up to date until release is called, which may be more than
// once. It returns when there is a result, even an empty one, or with the error of
// Subscription.Read, or of the source if there is no older result.
func (s *Cache) Subscribe(ctx context.Context, of Subscription) (release func(), err error) {
	f := s.acquire(of)
	release = sync.OnceFunc(func() { s.release(f) })
	f.read()
	if err := f.wait(ctx); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

func (s *Cache) acquire(of Subscription) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.entries[of.ID]
	if f == nil {
		f = &entry{Subscription: of, cache: s, ready: make(chan struct{})}
		s.entries[of.ID] = f
		s.meter.entries.Set(float64(len(s.entries)))
	}
	f.users++
	return f
}

func (s *Cache) release(f *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.users--
	f.released = s.clock.Now()
}

// ResourceVersion is that of a list of an entry's values, and of its bookmarks: the
// newest evaluation in decimal milliseconds; "1" before there is one.
func (s *Cache) ResourceVersion(id string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	f := s.entries[id]
	if f == nil || f.evaluated.IsZero() {
		return "1"
	}
	return strconv.FormatInt(f.evaluated.UnixMilli(), 10)
}

// Sequence implements stream.Source.
func (s *Cache) Sequence() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.sequence
}

// Stored implements stream.Source.
func (s *Cache) Stored(sequence uint64) time.Time { return s.began.Add(time.Duration(sequence)) }

// Get implements stream.Source.
func (s *Cache) Get(key samplestore.Key) stream.Item {
	items := s.items(key.Namespace)
	if i, found := slices.BinarySearchFunc(items, key.Name, (*item).compareName); found {
		return items[i]
	}
	return nil
}

// Select implements stream.Source.
func (s *Cache) Select(namespace string, _ []samplestore.Label, after samplestore.Key) iter.Seq[stream.Item] {
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

func (s *Cache) ids() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.entries))
}

// items returns those of an entry, ordered by name. The slice must not be changed.
func (s *Cache) items(id string) []*item {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if f := s.entries[id]; f != nil {
		return f.items
	}
	return nil
}
