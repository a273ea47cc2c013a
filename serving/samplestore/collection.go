// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"iter"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Store holds the newest points of nodes and pods.
type Store struct {
	Nodes, Pods *Collection
}

// NewStore returns an empty store that serves points up to the age maxAge.
func NewStore(c clock.PassiveClock, maxAge time.Duration) *Store {
	s := &Store{Nodes: newCollection(c), Pods: newCollection(c)}
	s.SetMaxAge(maxAge)
	return s
}

// MaxAge returns the age up to which points are served.
func (s *Store) MaxAge() time.Duration { return time.Duration(s.Nodes.maxAge.Load()) }

// SetMaxAge changes the age up to which points are served.
func (s *Store) SetMaxAge(d time.Duration) {
	s.Nodes.maxAge.Store(int64(d))
	s.Pods.maxAge.Store(int64(d))
}

// Collection holds the newest point of each key and the key's metadata.
type Collection struct {
	clock  clock.PassiveClock
	maxAge atomic.Int64
	// points and withoutPoint are what Swept returns.
	points, withoutPoint atomic.Int64
	// created is the time that sequence numbers count from.
	created time.Time

	// publishMu serializes Publish, so that the observer gets objects in the order
	// of their sequence numbers.
	publishMu sync.Mutex
	observer  func([]*Object)
	published []*Object

	// mu guards the maps and the fields of entries. Readers hold it to find a key
	// or an index, never while they iterate over a list or encode.
	mu         sync.RWMutex
	namespaces map[string]*namespace
	// entries is the total number of entries.
	entries int
	// names holds the sorted names of namespaces, and is reset when one is added or
	// removed.
	names lazy[[]string]
	// labels holds the indexes by the name of the label.
	labels map[string]*labelIndex
	// sequence is that of the newest point.
	sequence uint64
}

// entry joins metadata from kube-apiserver with points from kubelets. Points
// without metadata are rejected: a kubelet that invents pods must not fill the
// collection.
type entry struct {
	key Key
	// removed reports that the entry is no longer in the collection.
	removed bool
	// meta, point and retired are written and read under Collection.mu.
	meta  *Meta
	point *Point
	// sequence is the point's sequence number.
	sequence uint64
	// retired is what is known of earlier UIDs, or nil.
	retired *retired
	object  atomic.Pointer[Object]
}

// retired is what an entry keeps of earlier UIDs whose points were dropped.
type retired struct {
	// started is the start time of the newest container seen under them. A recreated
	// pod has containers that started later.
	started Time
	// at is when the last point was dropped; started applies for maxAge. Kubelets do
	// not report an ended pod for longer, while some pods return with containers that
	// did not start later: a deleted mirror pod, or a pod on a node whose clock is
	// behind.
	at Time
}

func newCollection(c clock.PassiveClock) *Collection {
	return &Collection{clock: c, created: c.Now(), namespaces: map[string]*namespace{}}
}

// SetMeta sets the metadata of a key. Another UID than before drops the point, unless
// its containers started since the new pod was created; equal metadata changes nothing.
func (t *Collection) SetMeta(key Key, meta *Meta) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.ensure(key)
	if e.meta != nil && e.meta.UID == meta.UID && maps.Equal(e.meta.Labels, meta.Labels) {
		return
	}
	if e.meta == nil || e.meta.UID != meta.UID {
		e.replace(meta, TimeOf(t.clock.Now()), t.oldest())
	}
	t.updateIndexes(e, meta)
	e.meta = meta
	e.join()
}

// DeleteMeta removes the metadata and the point of a key whose object is gone from
// kube-apiserver.
func (t *Collection) DeleteMeta(key Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.lookup(key)
	if e == nil {
		return
	}
	e.retire(TimeOf(t.clock.Now()), t.oldest())
	t.updateIndexes(e, nil)
	e.meta = nil
	e.join()
}

// RetainMeta removes the metadata and the points of all keys for which keep is false, one
// after another: readers may see some removed and others not. The lock is not held in
// between, so it must not be called while another goroutine sets metadata.
func (t *Collection) RetainMeta(keep func(Key) bool) {
	var gone []Key
	for _, name := range t.Namespaces() {
		t.mu.RLock()
		if ns := t.namespaces[name]; ns != nil {
			for _, e := range ns.entries {
				if e.meta != nil && !keep(e.key) {
					gone = append(gone, e.key)
				}
			}
		}
		t.mu.RUnlock()
	}
	for _, key := range gone {
		t.DeleteMeta(key)
	}
}

// replace retires an earlier UID. Kubelets may report a pod before its metadata is
// known: what started since the second after that of its creation is its own. If a
// node's clock is behind, that is not seen, and the pod has no points for maxAge. If it
// is ahead, what started just before is taken for the new pod's until its first report.
func (e *entry) replace(meta *Meta, now, oldest Time) {
	if e.point != nil && (meta.Created == 0 || e.point.Started < meta.Created+second) {
		e.retire(now, oldest)
	}
	if e.retired != nil && meta.Created != 0 {
		e.retired = &retired{started: min(e.retired.started, meta.Created+second-1), at: e.retired.at}
	}
}

// retire drops the point of an earlier UID, and keeps what its late reports are
// recognized by.
func (e *entry) retire(now, oldest Time) {
	if e.point == nil {
		return
	}
	started := e.point.Started
	if e.retired != nil && e.retired.at >= oldest {
		started = max(started, e.retired.started)
	}
	e.retired = &retired{started: started, at: now}
	e.point = nil
}

// join updates the entry's object from its metadata and point.
func (e *entry) join() {
	if e.meta == nil || e.point == nil {
		e.object.Store(nil)
		return
	}
	if o := e.object.Load(); o != nil && o.Meta == e.meta && o.Point == e.point {
		return
	}
	e.object.Store(&Object{Key: e.key, Meta: e.meta, Point: e.point, Sequence: e.sequence})
}

// Update is a point to store under a key.
type Update struct {
	Key   Key
	Point *Point
}

// Publish stores the points of one scrape, then passes the new objects to the
// observer. It returns the number of accepted points. A point is rejected if
//   - no metadata is known for its key;
//   - its newest sample is not newer than the stored one (a frozen kubelet);
//   - another node reported the key with a container that started later or at the
//     same time (a moved pod, which its old node may still report);
//   - its containers started no later than those of an earlier UID that was
//     replaced less than maxAge ago.
func (t *Collection) Publish(updates []Update) int {
	t.publishMu.Lock()
	defer t.publishMu.Unlock()
	accepted := t.store(updates)
	if len(t.published) > 0 {
		t.observer(t.published)
		clear(t.published)
		t.published = t.published[:0]
	}
	return accepted
}

// Observe sets the one observer. f is called after the objects of a Publish are
// visible, in the order of their sequence numbers, one call at a time. It must not
// keep the slice nor call Publish.
func (t *Collection) Observe(f func([]*Object)) {
	t.publishMu.Lock()
	defer t.publishMu.Unlock()
	t.observer = f
}

// Sequence returns the number of the newest point. All points up to it are visible.
func (t *Collection) Sequence() uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.sequence
}

// Stored returns the time at which the point with the given number was stored.
func (t *Collection) Stored(sequence uint64) time.Time {
	return t.created.Add(time.Duration(sequence))
}

// store stores the accepted updates and returns their number. The caller holds
// publishMu.
func (t *Collection) store(updates []Update) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	accepted, oldest := 0, t.oldest()
	now := uint64(max(0, t.clock.Since(t.created)))
	for _, u := range updates {
		e := t.lookup(u.Key)
		if e == nil || e.meta == nil || !e.accepts(u.Point, oldest) {
			continue
		}
		t.sequence = max(t.sequence+1, now)
		e.point, e.sequence = u.Point, t.sequence
		e.join()
		accepted++
		if t.observer != nil {
			t.published = append(t.published, e.object.Load())
		}
	}
	return accepted
}

// accepts reports whether p passes the rules of Publish. The entry has metadata.
func (e *entry) accepts(p *Point, oldest Time) bool {
	if e.retired != nil && e.retired.at >= oldest && e.retired.started != 0 && p.Started <= e.retired.started {
		return false
	}
	if e.point == nil {
		return true
	}
	if e.point.Node != p.Node && e.point.Time >= oldest {
		return p.Started > e.point.Started
	}
	return p.Newest > e.point.Newest
}

// oldest returns the earliest time of points that are still served.
func (t *Collection) oldest() Time {
	return TimeOf(t.clock.Now().Add(-time.Duration(t.maxAge.Load())))
}

// Get returns the object of a key, or nil if there is none or it is too old.
func (t *Collection) Get(key Key) *Object {
	t.mu.RLock()
	e := t.lookup(key)
	t.mu.RUnlock()
	if e == nil {
		return nil
	}
	o := e.object.Load()
	if o == nil || o.Point.Time < t.oldest() {
		return nil
	}
	return o
}

// Known reports whether metadata is known for the key.
func (t *Collection) Known(key Key) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e := t.lookup(key)
	return e != nil && e.meta != nil
}

// List yields the objects of a namespace, or of all if it is empty, ordered by key
// and without those that are too old. It starts after the key after, or at the
// beginning if that is zero. Each object is loaded when the iteration reaches it.
func (t *Collection) List(namespace string, after Key) iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		oldest := t.oldest()
		names := []string{namespace}
		if namespace == "" {
			names = t.Namespaces()
		}
		for _, ns := range names {
			if ns < after.Namespace {
				continue
			}
			if !yieldAfter(after, t.sortedEntries(ns), oldest, yield) {
				return
			}
		}
	}
}

// yieldAfter yields the objects of sorted entries after a key, without those that are too old, and
// reports whether yield wants more.
func yieldAfter(after Key, sorted []*entry, oldest Time, yield func(*Object) bool) bool {
	i, found := slices.BinarySearchFunc(sorted, after, func(e *entry, k Key) int { return e.key.Compare(k) })
	if found {
		i++
	}
	for batch := range slices.Chunk(sorted[i:], prefetchBatch) {
		prefetch(batch)
		for _, e := range batch {
			if o := e.object.Load(); o != nil && o.Point.Time >= oldest && !yield(o) {
				return false
			}
		}
	}
	return true
}

// prefetchBatch is the number of entries that prefetch reads at once.
const prefetchBatch = 64

// prefetch reads the entries' objects and points. They are anywhere in memory; the processor
// overlaps reads that do not depend on each other, but would wait for each in a loop that uses them.
// It reads only what the iteration itself needs; resourcemetrics does the same for what its encoders
// need.
func prefetch(entries []*entry) {
	var read Time
	for _, e := range entries {
		if o := e.object.Load(); o != nil {
			read += o.Point.Time
		}
	}
	runtime.KeepAlive(read) // so that the compiler keeps the reads
}
