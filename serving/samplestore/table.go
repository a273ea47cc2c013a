// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Store holds the tables of a serving process.
type Store struct {
	Nodes, Pods *Table
}

// NewStore returns an empty store whose points are served until they are older
// than maxAge.
func NewStore(c clock.PassiveClock, maxAge time.Duration) *Store {
	s := &Store{Nodes: newTable(c), Pods: newTable(c)}
	s.SetMaxAge(maxAge)
	return s
}

// SetMaxAge changes the age from which points are no longer served.
func (s *Store) SetMaxAge(d time.Duration) {
	s.Nodes.maxAge.Store(int64(d))
	s.Pods.maxAge.Store(int64(d))
}

// Table holds the newest point of each key and the key's metadata.
type Table struct {
	clock  clock.PassiveClock
	maxAge atomic.Int64
	// began is when the table was made; numbers of points count from then.
	began time.Time

	// publishing lets one publisher at a time store points and tell of them, so
	// that the observer hears of them in the order of their numbers.
	publishing sync.Mutex
	observe    func([]*Object)
	news       []*Object

	// mu guards the maps and every entry's writes. Readers hold it to find a key
	// or an index, never while they go through a list or encode.
	mu         sync.RWMutex
	namespaces map[string]*namespace
	// entries is how many there are in all.
	entries int
	// order holds the namespaces' names sorted; nil after a namespace came or went.
	order atomic.Pointer[[]string]
	// labels are the indexes of labels that clients select by.
	labels map[string]*labelIndex
	// sequence is the number of the newest point.
	sequence uint64
}

// entry joins what two sources tell: metadata from kube-apiserver, points from
// kubelets. Metadata comes first: a kubelet has a pod from kube-apiserver, and
// one that invents pods must not fill the table.
type entry struct {
	key Key
	// forgotten says that the entry is no longer in the table.
	forgotten bool
	// meta, point and barrier are written and read under Table.mu.
	meta  *Meta
	point *Point
	// sequence is the point's number.
	sequence uint64
	// barrier is the start of the newest container seen under an earlier UID.
	// A pod that was recreated under its name has containers that started later.
	barrier time.Time
	// retired is when the barrier was set; it falls a maxAge later. A kubelet
	// does not report a pod for that long after its end, while some pods do come
	// back with containers that are no younger: a mirror pod that was deleted,
	// or a pod on a node whose clock is behind.
	retired time.Time
	object  atomic.Pointer[Object]
}

func newTable(c clock.PassiveClock) *Table {
	return &Table{clock: c, began: c.Now(), namespaces: map[string]*namespace{}}
}

// SetMeta records the metadata of a key, and joins it with the key's point.
func (t *Table) SetMeta(key Key, meta *Meta) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.ensure(key)
	if e.meta != nil && e.meta.UID != meta.UID {
		e.retire(t.clock.Now(), t.horizon())
	}
	t.relabel(e, meta)
	e.meta = meta
	e.join()
}

// DeleteMeta records that the key's object is gone from kube-apiserver. Its
// point is dropped: points without metadata are never served.
func (t *Table) DeleteMeta(key Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.lookup(key)
	if e == nil {
		return
	}
	e.retire(t.clock.Now(), t.horizon())
	t.relabel(e, nil)
	e.meta = nil
	e.join()
}

// retire drops the point of an earlier incarnation and bars its late reports.
func (e *entry) retire(now, horizon time.Time) {
	if e.point == nil {
		return
	}
	if e.retired.Before(horizon) || e.point.Started.After(e.barrier) {
		e.barrier = e.point.Started
	}
	e.retired = now
	e.point = nil
}

// join publishes the entry's current pair of metadata and point.
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

// Update is a point on its way into a table.
type Update struct {
	Key   Key
	Point *Point
}

// Publish takes in the points of one scrape and returns how many of them were
// news. A point is news unless one of these holds:
//   - kube-apiserver has no object of that key, as far as is known here;
//   - the newest sample is the one already known, or older (a frozen kubelet);
//   - another node reported the key with a container that started later, or at
//     the same time (a pod that moved: the node it left may go on reporting it);
//   - its containers started no later than those of an earlier UID, which was
//     replaced less than a maxAge ago.
func (t *Table) Publish(updates []Update) int {
	t.publishing.Lock()
	defer t.publishing.Unlock()
	published := t.take(updates)
	if len(t.news) > 0 {
		t.observe(t.news)
		clear(t.news)
		t.news = t.news[:0]
	}
	return published
}

// Observe has f called with the objects of every publication from now on, after
// they became visible: in the order of their numbers, one call at a time. f must
// not keep the slice, nor publish. There is one observer.
func (t *Table) Observe(f func([]*Object)) {
	t.publishing.Lock()
	defer t.publishing.Unlock()
	t.observe = f
}

// Sequence is the number of the newest point: all up to it are visible.
func (t *Table) Sequence() uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.sequence
}

// Stored returns when the point of a number was stored.
func (t *Table) Stored(sequence uint64) time.Time {
	return t.began.Add(time.Duration(sequence))
}

// take stores those of the updates that are news. The caller holds publishing.
func (t *Table) take(updates []Update) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	published, horizon := 0, t.horizon()
	now := uint64(max(0, t.clock.Since(t.began)))
	for _, u := range updates {
		e := t.lookup(u.Key)
		if e == nil || e.meta == nil || !e.accepts(u.Point, horizon) {
			continue
		}
		t.sequence = max(t.sequence+1, now)
		e.point, e.sequence = u.Point, t.sequence
		e.join()
		published++
		if t.observe != nil {
			t.news = append(t.news, e.object.Load())
		}
	}
	return published
}

func (e *entry) accepts(p *Point, horizon time.Time) bool {
	if !e.retired.Before(horizon) && !e.barrier.IsZero() && !p.Started.After(e.barrier) {
		return false
	}
	if e.point == nil {
		return true
	}
	if e.point.Node != p.Node && !e.point.Time.Before(horizon) {
		return p.Started.After(e.point.Started)
	}
	return p.Newest.UnixMilli() > e.point.Newest.UnixMilli()
}

// horizon is the time before which points are no longer served.
func (t *Table) horizon() time.Time {
	return t.clock.Now().Add(-time.Duration(t.maxAge.Load()))
}

// Get returns the object of a key, or nil when there is none young enough.
func (t *Table) Get(key Key) *Object {
	t.mu.RLock()
	e := t.lookup(key)
	t.mu.RUnlock()
	if e == nil {
		return nil
	}
	o := e.object.Load()
	if o == nil || o.Point.Time.Before(t.horizon()) {
		return nil
	}
	return o
}

// Known says whether kube-apiserver has an object of that key.
func (t *Table) Known(key Key) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e := t.lookup(key)
	return e != nil && e.meta != nil
}

// List yields the objects that are young enough, ordered by key, beginning
// after the key `after` (the zero Key: from the start), of one namespace or,
// where namespace is empty, of all. It sees each object as it is when reached.
func (t *Table) List(namespace string, after Key) iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		horizon := t.horizon()
		names := []string{namespace}
		if namespace == "" {
			names = t.sortedNamespaces()
		}
		for _, ns := range names {
			if ns < after.Namespace {
				continue
			}
			entries := t.sortedEntries(ns)
			if ns == after.Namespace && after != (Key{}) {
				i, found := slices.BinarySearchFunc(entries, after, func(e *entry, k Key) int { return e.key.Compare(k) })
				if found {
					i++
				}
				entries = entries[i:]
			}
			for _, e := range entries {
				o := e.object.Load()
				if o == nil || o.Point.Time.Before(horizon) {
					continue
				}
				if !yield(o) {
					return
				}
			}
		}
	}
}
