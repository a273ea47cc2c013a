// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"strconv"
	"testing"
	"time"
)

func TestSlots(t *testing.T) {
	s := Schedule{Interval: 15 * time.Second, Phase: 4 * time.Second}
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for after, want := range map[time.Duration]time.Duration{
		0: -11 * time.Second, 4*time.Second - 1: -11 * time.Second,
		4 * time.Second: 4 * time.Second, 10 * time.Second: 4 * time.Second, 19 * time.Second: 19 * time.Second,
	} {
		at := noon.Add(after)
		if got := s.Start(at).Sub(noon); got != want {
			t.Errorf("the slot at %s starts at %s, want %s", after, got, want)
		}
		if got := s.Next(at).Sub(noon); got != want+s.Interval {
			t.Errorf("the slot after %s starts at %s, want %s", after, got, want+s.Interval)
		}
	}
}

func TestPhase(t *testing.T) {
	const interval, keys = 15 * time.Second, 1000
	tenths := map[time.Duration]int{}
	for i := range keys {
		p := Phase(interval, "source", strconv.Itoa(i))
		if p < 0 || p >= interval || p != p.Truncate(time.Millisecond) {
			t.Fatalf("phase %s", p)
		}
		tenths[p/(interval/10)]++
	}
	for tenth, n := range tenths {
		if n < keys/20 || n > keys/5 {
			t.Errorf("%d of %d phases are in tenth %d of the interval", n, keys, tenth)
		}
	}
	if Phase(interval, "a", "bc") == Phase(interval, "ab", "c") {
		t.Error("keys are not told apart")
	}
}
