// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package schedule divides time into intervals that start at a phase of their own, so that periodic
// work is spread over the interval, and replicas do it at the same instants.
package schedule

import (
	"hash/fnv"
	"strings"
	"time"
)

// Phase returns a whole number of milliseconds in [0, interval), from a hash of the keys.
func Phase(interval time.Duration, keys ...string) time.Duration {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(strings.Join(keys, "\x00"))) // never fails
	return time.Duration(hash.Sum64()%uint64(interval.Milliseconds())) * time.Millisecond
}

// Schedule divides time into slots of an Interval, with a start at Phase after the Unix epoch. Its
// resolution is a millisecond.
type Schedule struct{ Interval, Phase time.Duration }

// Slot returns the number of the slot that t is in, and its start.
func (s Schedule) Slot(t time.Time) (n int64, start time.Time) {
	interval, phase := s.Interval.Milliseconds(), s.Phase.Milliseconds()
	since := t.UnixMilli() - phase
	n = since / interval
	if since < n*interval { // before 1970
		n--
	}
	return n, time.UnixMilli(n*interval + phase)
}

// Start returns the start of the slot that t is in.
func (s Schedule) Start(t time.Time) time.Time {
	_, start := s.Slot(t)
	return start
}

// Next returns the start of the slot after that of t: later than t, by at most an interval.
func (s Schedule) Next(t time.Time) time.Time { return s.Start(t).Add(s.Interval) }
