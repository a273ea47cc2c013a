// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/internal/schedule"
)

const (
	minInterval     = time.Second
	defaultInterval = 15 * time.Second
)

// slotsOf returns the slots in which a query is evaluated, the same on all replicas. Their times
// are whole milliseconds, like those of resourceVersions.
func slotsOf(q Query) schedule.Schedule {
	interval := q.Interval
	switch {
	case interval <= 0:
		interval = defaultInterval
	case interval < minInterval:
		interval = minInterval
	}
	return schedule.Schedule{
		Interval: interval.Truncate(time.Millisecond),
		Phase:    schedule.Phase(interval, q.Source, cmp.Or(q.Batch.text(), q.Expression), interval.String()),
	}
}

// untilNext returns the duration from t to the start of the next slot: more than zero, and at
// most one interval, even if the clock has jumped.
func untilNext(s schedule.Schedule, t time.Time) time.Duration { return s.Next(t).Sub(t.Round(0)) }

const (
	// minLag is the least time after that of a sample at which a query is evaluated, which the sample needs to
	// become visible. It doubles while samples arrive later.
	minLag = 500 * time.Millisecond
	// phaseTolerance is by how much the times at which a source renews series vary.
	phaseTolerance = 250 * time.Millisecond
	// maxEarly is how long before the start of a slot whose phase has changed the last result is that of the slot.
	maxEarly = time.Second
	// minRenewals and maxRenewals are the renewals at the same phase after which slots follow them, twice as
	// many after each time that the phase was lost.
	minRenewals, maxRenewals = 2, 64
)

// slots are the slots of a query, or of a Batch. Their phase is a hash of the query, until it is known when in
// each interval the source renews the series: then a slot starts soon after. Replicas agree on it as
// long as they see the same samples.
type slots struct {
	schedule.Schedule
	hashed time.Duration
	// newest is the time of the newest sample so far, and renewals counts the newer ones in a row at its phase.
	newest           time.Time
	renewals, needed int
	// lag is how long after a sample a slot starts; zero while the phase is the hash.
	lag time.Duration
	// late counts the samples in a row that were not visible at the start of a slot.
	late int
}

func newSlots(q Query) *slots {
	s := slotsOf(q)
	return &slots{Schedule: s, hashed: s.Phase, needed: minRenewals}
}

// follow adapts the phase to the newest sample of an evaluation as of an instant, and reports whether it changed.
// Of an evaluation at another instant than the start of a slot it learns nothing.
func (s *slots) follow(at, newest time.Time) bool {
	if !newest.After(s.newest) || !at.Equal(s.Start(at)) {
		return false
	}
	before, first := s.Phase, s.newest.IsZero()
	moved := s.distance(newest.Sub(s.newest))
	s.newest = newest
	switch {
	case first:
		return false
	case moved > phaseTolerance: // there is no interval, or another one
		if s.lag > 0 {
			s.needed = min(2*s.needed, maxRenewals)
		}
		s.Phase, s.renewals, s.lag, s.late = s.hashed, 0, 0, 0
		return s.Phase != before
	}
	s.renewals++
	switch {
	case s.lag == 0 && s.renewals >= s.needed:
		s.lag = minLag
	case s.lag == 0:
		return false
	case s.distance(s.after(newest)-s.Phase) > 2*phaseTolerance: // it moved slowly
	case at.Sub(newest) <= s.lag+2*phaseTolerance:
		s.late = 0
		return false
	default:
		if s.late++; s.late < 2 {
			return false
		}
		s.lag, s.late = min(2*s.lag, s.Interval-s.Interval/8), 0
	}
	s.Phase = s.after(newest)
	return s.Phase != before
}

// after returns the phase that is lag after a sample. It is rounded, so that replicas agree.
func (s *slots) after(sample time.Time) time.Duration {
	since := time.Duration(sample.UnixMilli())*time.Millisecond + s.lag + phaseTolerance - 1
	return since.Truncate(phaseTolerance) % s.Interval
}

// distance returns how far a duration is from the next multiple of the interval.
func (s *slots) distance(d time.Duration) time.Duration {
	d = (d%s.Interval + s.Interval) % s.Interval
	return min(d, s.Interval-d)
}
