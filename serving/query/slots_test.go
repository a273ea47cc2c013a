// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"testing"
	"time"
)

func FuzzSlots(f *testing.F) {
	f.Add("up", int64(15*time.Second), int64(1_790_000_000_123_456_789))
	f.Add("up", int64(0), int64(0))
	f.Add("", int64(time.Hour), int64(-1))
	f.Add("up", int64(1234567891), int64(-62_135_596_800))
	f.Fuzz(func(t *testing.T, expression string, interval, nanos int64) {
		s := slotsOf(Query{Expression: expression, Interval: time.Duration(interval) % (100 * time.Hour)})
		now := time.Unix(0, nanos)
		slot, began := s.Slot(now)
		if since := now.Sub(began); since < 0 || since >= s.Interval+time.Millisecond {
			t.Errorf("a slot of %s began %s ago", s.Interval, since)
		}
		if began.Nanosecond()%int(time.Millisecond) != 0 {
			t.Errorf("a slot began at %s, amid a millisecond", began)
		}
		if again, same := s.Slot(began); again != slot || !same.Equal(began) {
			t.Error("a slot does not begin in itself")
		}
		if wait := untilNext(s, now); wait <= 0 || wait > s.Interval {
			t.Errorf("the next slot of %s begins in %s", s.Interval, wait)
		}
		if next, _ := s.Slot(now.Add(untilNext(s, now))); next != slot+1 {
			t.Errorf("after slot %d comes %d", slot, next)
		}
	})
}

func TestSlotsAreSpread(t *testing.T) {
	quarters := [4]int{}
	for i := range 1000 {
		s := slotsOf(testQuery(string(rune(i))))
		quarters[s.Phase*4/s.Interval]++
	}
	for i, n := range quarters {
		if n < 200 || n > 300 {
			t.Errorf("%d of 1000 queries start in quarter %d", n, i)
		}
	}
}
