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

// Schedule has a slot of each Interval, which starts at Phase.
type Schedule struct{ Interval, Phase time.Duration }

// Start returns the start of the slot that t is in.
func (s Schedule) Start(t time.Time) time.Time {
	return t.Add(-s.Phase).Truncate(s.Interval).Add(s.Phase)
}

// Next returns the start of the slot after that of t: later than t, by at most an interval.
func (s Schedule) Next(t time.Time) time.Time { return s.Start(t).Add(s.Interval) }
