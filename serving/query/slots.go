// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"hash/fnv"
	"time"
)

const (
	// minInterval is that of questions that name a shorter one.
	minInterval = time.Second
	// usualInterval is that of questions that name none.
	usualInterval = 15 * time.Second
)

// slots divides the wall clock for a question: slot n begins at n intervals after
// the phase, from 1970 on. The phase is a hash of the question. So questions are
// spread over the interval, and replicas divide alike. All times are whole
// milliseconds, as those of resourceVersions are.
type slots struct {
	interval, phase int64 // milliseconds
}

func slotsOf(q Query) slots {
	interval := q.Interval
	switch {
	case interval <= 0:
		interval = usualInterval
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

// at returns the slot of a time, and when that slot began.
func (s slots) at(t time.Time) (slot int64, began time.Time) {
	since := t.UnixMilli() - s.phase
	slot = since / s.interval
	if since < slot*s.interval { // before 1970
		slot--
	}
	return slot, time.UnixMilli(slot*s.interval + s.phase)
}

// untilNext returns the time from t to the beginning of the next slot: always more
// than zero, and never more than an interval, wherever the clock has jumped.
func (s slots) untilNext(t time.Time) time.Duration {
	_, began := s.at(t)
	return began.Add(s.length()).Sub(t.Round(0))
}

func (s slots) length() time.Duration { return time.Duration(s.interval) * time.Millisecond }
