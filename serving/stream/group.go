// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"sync"
	"sync/atomic"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// The length of a group's log. It begins small, since most groups are of one
// watcher that selects a few pods, and grows when a watcher is outrun.
const (
	minLog = 32
	maxLog = 1024
)

// entry says that a data point of a key was stored.
type entry struct {
	sequence uint64
	key      samplestore.Key
}

// group is all watchers of one selection.
type group struct {
	selection Selection
	filing
	// matched says that only points that the selection selects are in the log. It
	// is the index's, which sets it once.
	matched bool

	// head counts the entries that were ever written. It is written under mu.
	head atomic.Uint64

	// mu is held for reading by thousands of watchers at the same moment.
	mu  sync.RWMutex
	log []entry // entry i is at i % len(log)
	// grown is the oldest entry that was left when the log last grew.
	grown    uint64
	watchers map[*Watcher]struct{}

	// touched is the publisher's: this batch has an entry for the group.
	touched bool
}

func newGroup(s Selection, f filing) *group {
	size := minLog
	if _, one := s.Key(); one {
		size = 1
	}
	return &group{selection: s, filing: f, log: make([]entry, size), watchers: map[*Watcher]struct{}{}}
}

// append writes an entry. The hub wakes the watchers once for a whole batch.
func (g *group) append(item Item) {
	g.mu.Lock()
	defer g.mu.Unlock()
	head := g.head.Load()
	g.log[head%uint64(len(g.log))] = entry{sequence: item.ItemSequence(), key: item.ItemKey()}
	g.head.Store(head + 1)
}

// wake tells the watchers that there is something new.
func (g *group) wake() {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for w := range g.watchers {
		w.wake()
	}
}

// read returns the entry at a position and the one to read after it; both positions
// are the same where there is none yet. lost is true where it has been overwritten.
// The log of a single key loses nothing: its one entry is newer than all before it.
func (g *group) read(position uint64) (e entry, after uint64, lost bool) {
	if position >= g.head.Load() {
		return entry{}, position, false
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if len(g.log) == 1 {
		return g.log[0], g.head.Load(), false
	}
	if position < g.grown || g.head.Load()-position > uint64(len(g.log)) {
		return entry{}, position, true
	}
	return g.log[position%uint64(len(g.log))], position + 1, false
}

// grow makes the log longer after it outran a watcher.
func (g *group) grow() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.log) == 1 || len(g.log) >= maxLog {
		return
	}
	longer := make([]entry, 2*len(g.log))
	head := g.head.Load()
	oldest := head - min(head, uint64(len(g.log)))
	for i := oldest; i < head; i++ {
		longer[i%uint64(len(longer))] = g.log[i%uint64(len(g.log))]
	}
	g.log, g.grown = longer, max(g.grown, oldest)
}

// join adds a watcher, which sees all that is appended from now on.
func (g *group) join(w *Watcher) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watchers[w] = struct{}{}
	w.position.Store(g.head.Load())
}

// leave removes a watcher and returns whether none is left.
func (g *group) leave(w *Watcher) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.watchers, w)
	return len(g.watchers) == 0
}
