// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"sync"
	"sync/atomic"
	"time"
)

// tick is the precision of everything that happens by the clock. One timer for
// all watchers is a fraction of the memory of a timer for each.
const tick = 250 * time.Millisecond

// agenda knows when a watcher is to be looked at next.
type agenda struct {
	begin time.Time
	// current is the number of the current tick since the agenda's begin. That goes by
	// the monotonic clock: when the time of day is set, nobody's watch ends or is
	// forgotten.
	current atomic.Int64

	mu  sync.Mutex
	due map[int64]map[*Watcher]struct{}
	// done is the last tick that was taken.
	done int64
}

func newAgenda(now time.Time) *agenda {
	return &agenda{begin: now, due: map[int64]map[*Watcher]struct{}{}}
}

// number is that of the tick at a time.
func (a *agenda) number(at time.Time) int64 { return int64(at.Sub(a.begin) / tick) }

// reached says whether a time has come, as far as the precision of a tick goes.
func (a *agenda) reached(at, now time.Time) bool {
	return !at.IsZero() && a.number(at) <= a.number(now)
}

// put files a watcher under a time, unless it is filed under an earlier one.
func (a *agenda) put(w *Watcher, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := max(a.number(at), a.done+1)
	if filed := w.timetable.filed; filed != 0 && filed <= n {
		return
	}
	a.drop(w)
	if a.due[n] == nil {
		a.due[n] = map[*Watcher]struct{}{}
	}
	a.due[n][w] = struct{}{}
	w.timetable.filed = n
}

// remove forgets a watcher.
func (a *agenda) remove(w *Watcher) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(w)
}

func (a *agenda) drop(w *Watcher) {
	if filed := w.timetable.filed; filed != 0 {
		delete(a.due[filed], w)
		if len(a.due[filed]) == 0 {
			delete(a.due, filed)
		}
		w.timetable.filed = 0
	}
}

// take removes and returns the watchers whose time has come.
func (a *agenda) take(now time.Time) []*Watcher {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.number(now)
	a.current.Store(n)
	var taken []*Watcher
	collect := func(at int64) {
		for w := range a.due[at] {
			w.timetable.filed = 0
			taken = append(taken, w)
		}
		delete(a.due, at)
	}
	if n-a.done > int64(len(a.due)) { // after a long pause
		for at := range a.due {
			if at <= n {
				collect(at)
			}
		}
	} else {
		for at := a.done + 1; at <= n; at++ {
			collect(at)
		}
	}
	a.done = max(a.done, n)
	return taken
}
