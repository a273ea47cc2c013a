// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

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
	// maxLag is how long after a sample a slot starts that follows the source: within it a scrape becomes
	// visible, usually. Of short intervals it is a quarter.
	maxLag = time.Second
	// phaseTolerance is by how much the times at which a source renews series vary.
	phaseTolerance = 250 * time.Millisecond
	// minRenewals and maxRenewals are the renewals at the same phase after which slots follow them, twice as
	// many after each time that they cannot any more.
	minRenewals, maxRenewals = 2, 64
	// maxLate is the number of samples in a row that are not visible in time, after which slots no longer follow.
	maxLate = 2
	// maxEarly is how long before the start of a slot whose phase has changed an evaluation is that of the slot. Of
	// short intervals it is an eighth.
	maxEarly = time.Second
)

// slots are the slots of a query, or of a Batch. Their phase is a hash of the query, until it is known when in
// each interval the source renews the series: then a slot starts soon after. Replicas that see the same
// samples come to the same phase.
type slots struct {
	schedule.Schedule
	hashed    time.Duration
	following bool
	// newest is the time of the newest sample so far, and renewals counts the newer ones in a row at its phase.
	newest           time.Time
	renewals, needed int
	// late counts the samples in a row that were not visible at the slot that follows them.
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
	s.renewals++
	after := s.after(newest)
	drift := s.distance(after - s.Phase)
	switch {
	case first:
		s.renewals = 0
	case moved > phaseTolerance: // there is no interval, or another one
		s.unfollow()
	case !s.following:
		if s.renewals >= s.needed {
			s.following, s.Phase = true, after
		}
	case drift > 2*phaseTolerance: // it moved slowly
		s.Phase = after
	case at.Sub(newest) <= s.lag()+2*phaseTolerance:
		s.late = 0
	default:
		if s.late++; s.late == maxLate {
			s.unfollow()
		}
	}
	return s.Phase != before
}

// unfollow ends the following of samples, until there are more renewals than before.
func (s *slots) unfollow() {
	if s.following {
		s.needed = min(2*s.needed, maxRenewals)
	}
	s.Phase, s.following, s.renewals, s.late = s.hashed, false, 0, 0
}

func (s *slots) lag() time.Duration { return min(maxLag, s.Interval/4) }

// after returns the phase that is the lag after a sample. It is rounded, so that replicas agree.
func (s *slots) after(sample time.Time) time.Duration {
	since := time.Duration(sample.UnixMilli())*time.Millisecond + s.lag() + phaseTolerance - 1
	return since.Truncate(phaseTolerance) % s.Interval
}

// distance returns how far a duration is from the next multiple of the interval.
func (s *slots) distance(d time.Duration) time.Duration {
	d = (d%s.Interval + s.Interval) % s.Interval
	return min(d, s.Interval-d)
}

// renumbered returns the number of a slot of a schedule before, or of the one that starts soon after it.
func (s *slots) renumbered(before schedule.Schedule, slot int64) int64 {
	start := time.UnixMilli(slot*before.Interval.Milliseconds() + before.Phase.Milliseconds())
	n, _ := s.Slot(start.Add(min(maxEarly, s.Interval/8)))
	return n
}

// follow has the slots of an entry, and of its batch, follow the newest sample of its evaluation.
func (v *Evaluator) follow(e *entry, at, newest, now time.Time) {
	before := e.slots.Schedule
	if newest.IsZero() || !e.slots.follow(at, newest) {
		return
	}
	entries := sets.New(e)
	if b := v.cache.batches[e.batchKey()]; b != nil {
		entries = b.entries
	}
	slot, _ := before.Slot(now)
	for e := range entries {
		// One whose evaluation in this slot is still to come would otherwise wait for the next.
		overdue := e.outcome != nil && e.outcome.slot < slot && e.evaluation == nil && len(e.subscribers) > 0
		e.failedSlot = e.slots.renumbered(before, e.failedSlot)
		if e.outcome != nil {
			e.outcome.slot = e.slots.renumbered(before, e.outcome.slot)
		}
		if e.evaluation != nil {
			e.evaluation.slot = e.slots.renumbered(before, e.evaluation.slot)
		}
		v.schedule(e, now)
		if overdue {
			v.due.Put(e, now)
		}
	}
}
