// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package consumers

import (
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// maxOthers bounds how many clients beyond v1alpha1.MaxConsumers are told apart.
const maxOthers = 1000

// ledger holds the clients of one version.
type ledger struct {
	// known is replaced, never changed, so that it is read without a lock; only
	// the days in it change.
	known atomic.Pointer[map[client]*lastSeen]

	mu   sync.Mutex
	seed maphash.Seed
	// full is the last day on which all of known were clients of that day: nobody
	// else finds a place on it.
	full day
	// others are the clients that found no place in known, by hash; swept is the
	// last day on which those of former days were dropped.
	others map[uint64]day
	swept  day
}

// lastSeen is the last day on which a client asked.
type lastSeen struct{ day atomic.Int32 }

// seen is a client and the last day on which it asked.
type seen struct {
	client
	day day
}

func newLedger() *ledger {
	l := &ledger{seed: maphash.MakeSeed(), others: map[uint64]day{}}
	l.known.Store(&map[client]*lastSeen{})
	return l
}

// saw notes a client, as it came, today.
func (l *ledger) saw(who client, today day) {
	if l.renew(who, today) {
		return
	}
	// A client whose names were replaced is known by the printable ones.
	who = who.printable()
	if l.renew(who, today) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.others[l.hash(who)] == today {
		// It found no place today; none becomes free before the day ends.
		return
	}
	if l.renew(who, today) || l.admit(who, today) {
		return
	}
	l.countOther(who, today)
}

// renew sets the day of a client that is known.
func (l *ledger) renew(who client, today day) bool {
	last := (*l.known.Load())[who]
	if last == nil {
		return false
	}
	// Written once a day, or the processors would hand the line to and fro.
	if day(last.day.Load()) != today {
		last.day.Store(int32(today))
	}
	return true
}

// admit makes a client known, if need be in place of one that did not ask today.
// Clients of today keep their place: whoever comes with ever new names takes it
// from nobody.
func (l *ledger) admit(who client, today day) bool {
	if l.full == today {
		return false
	}
	known := map[client]*lastSeen{}
	for c, last := range *l.known.Load() {
		if isRecent(day(last.day.Load()), today) {
			known[c] = last
		}
	}
	if len(known) >= v1alpha1.MaxConsumers {
		oldest, found := client{}, false
		for c, last := range known {
			if day(last.day.Load()) < today && (!found || last.day.Load() < known[oldest].day.Load()) {
				oldest, found = c, true
			}
		}
		if !found {
			l.full = today
			return false
		}
		l.countOther(oldest, day(known[oldest].day.Load()))
		delete(known, oldest)
	}
	last := &lastSeen{}
	last.day.Store(int32(today))
	known[who.clone()] = last
	delete(l.others, l.hash(who))
	l.known.Store(&known)
	return true
}

func (l *ledger) countOther(who client, on day) {
	hash := l.hash(who)
	if _, ok := l.others[hash]; !ok && len(l.others) >= maxOthers {
		if l.swept != on {
			l.swept = on
			maps.DeleteFunc(l.others, func(_ uint64, day day) bool { return !isRecent(day, on) })
		}
		if len(l.others) >= maxOthers {
			return
		}
	}
	l.others[hash] = on
}

func (l *ledger) hash(who client) uint64 { return maphash.Comparable(l.seed, who) }

// recent returns the clients of today and yesterday, and the number of others.
func (l *ledger) recent(today day) ([]seen, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var clients []seen
	for c, last := range *l.known.Load() {
		// A day in the future is from before a clock was set right.
		if on := min(day(last.day.Load()), today); isRecent(on, today) {
			clients = append(clients, seen{c, on})
		}
	}
	maps.DeleteFunc(l.others, func(_ uint64, day day) bool { return !isRecent(day, today) })
	return clients, len(l.others)
}

// isRecent tells whether a day is today or yesterday, or later.
func isRecent(d, today day) bool { return d >= today-1 }
