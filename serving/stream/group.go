// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"sync"
	"sync/atomic"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// The length of a group's log. It starts short, since most groups have one watcher that selects
// a few pods, and doubles when a watcher falls behind it.
const (
	minLog = 32
	maxLog = 1024
)

// logEntry records that a data point of a key was stored.
type logEntry struct {
	sequence uint64
	key      samplestore.Key
}

// group has the watchers of one selection and their log.
type group struct {
	selection Selection
	indexEntry
	// prefiltered says that the log has selected points only. The index sets it once.
	prefiltered bool

	// head counts the entries that were ever written. It is written under mu.
	head atomic.Uint64

	// mu is read-locked by thousands of watchers at the same moment.
	mu  sync.RWMutex
	log []logEntry // entry i is at i % len(log)
	// grown is the oldest entry that was left when the log last grew.
	grown    uint64
	watchers map[*Watcher]struct{}

	// touched says that the current batch of Publish has an entry for the group.
	touched bool
}

func newGroup(s Selection, e indexEntry) *group {
	size := minLog
	if _, one := s.Key(); one {
		size = 1
	}
	return &group{selection: s, indexEntry: e, log: make([]logEntry, size), watchers: map[*Watcher]struct{}{}}
}

// append writes an entry. The hub wakes the watchers once per batch.
func (g *group) append(item Item) {
	g.mu.Lock()
	defer g.mu.Unlock()
	head := g.head.Load()
	g.log[head%uint64(len(g.log))] = logEntry{sequence: item.ItemSequence(), key: item.ItemKey()}
	g.head.Store(head + 1)
}

func (g *group) wake() {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for w := range g.watchers {
		w.wake()
	}
}

// read returns the entry at a position, and the next position, which is the same one if there
// is no entry yet. lost is true if the entry was overwritten. The log of a single key loses
// nothing: its one entry supersedes all before it.
func (g *group) read(position uint64) (e logEntry, next uint64, lost bool) {
	if position >= g.head.Load() {
		return logEntry{}, position, false
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if len(g.log) == 1 {
		return g.log[0], g.head.Load(), false
	}
	if position < g.grown || g.head.Load()-position > uint64(len(g.log)) {
		return logEntry{}, position, true
	}
	return g.log[position%uint64(len(g.log))], position + 1, false
}

// grow doubles the log after a watcher fell behind it.
func (g *group) grow() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.log) == 1 || len(g.log) >= maxLog {
		return
	}
	longer := make([]logEntry, 2*len(g.log))
	head := g.head.Load()
	oldest := head - min(head, uint64(len(g.log)))
	for i := oldest; i < head; i++ {
		longer[i%uint64(len(longer))] = g.log[i%uint64(len(g.log))]
	}
	g.log, g.grown = longer, max(g.grown, oldest)
}

// join adds a watcher, which reads the log from the current head.
func (g *group) join(w *Watcher) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watchers[w] = struct{}{}
	w.position.Store(g.head.Load())
}

// leave removes a watcher and reports whether the group is empty.
func (g *group) leave(w *Watcher) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.watchers, w)
	return len(g.watchers) == 0
}
