// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"hash/fnv"
	"time"
)

const (
	minInterval     = time.Second
	defaultInterval = 15 * time.Second
)

// slots divides the wall clock into the intervals of a query: slot n starts n intervals and
// the phase after the epoch. The phase is a hash of the query, so that queries are spread over
// the interval, and all replicas have the same slots. All times are whole milliseconds, like
// those of resourceVersions.
type slots struct {
	interval, phase int64 // milliseconds
}

func slotsOf(q Query) slots {
	interval := q.Interval
	switch {
	case interval <= 0:
		interval = defaultInterval
	case interval < minInterval:
		interval = minInterval
	}
	hash := fnv.New64a()
	for _, part := range []string{q.Source, "\x00", q.Expression, "\x00", interval.String()} {
		_, _ = hash.Write([]byte(part)) // never fails
	}
	ms := interval.Milliseconds()
	return slots{interval: ms, phase: int64(hash.Sum64() % uint64(ms))}
}

// at returns the slot of a time, and the start of that slot.
func (s slots) at(t time.Time) (slot int64, start time.Time) {
	since := t.UnixMilli() - s.phase
	slot = since / s.interval
	if since < slot*s.interval { // before 1970
		slot--
	}
	return slot, time.UnixMilli(slot*s.interval + s.phase)
}

// untilNext returns the duration from t to the start of the next slot: more than zero, and at
// most one interval, even if the clock has jumped.
func (s slots) untilNext(t time.Time) time.Duration {
	_, start := s.at(t)
	return start.Add(s.length()).Sub(t.Round(0))
}

func (s slots) length() time.Duration { return time.Duration(s.interval) * time.Millisecond }
