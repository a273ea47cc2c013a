// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestLowerGCPercent(t *testing.T) {
	const before = 1234
	for name, tc := range map[string]struct {
		env map[string]string
		set bool
	}{
		"not set":        {set: true},
		"empty":          {env: map[string]string{"GOGC": ""}, set: true},
		"set":            {env: map[string]string{"GOGC": "100"}},
		"off":            {env: map[string]string{"GOGC": "off"}},
		"a memory limit": {env: map[string]string{"GOMEMLIMIT": "1GiB"}, set: true},
	} {
		t.Run(name, func(t *testing.T) {
			original := debug.SetGCPercent(before)
			t.Cleanup(func() { debug.SetGCPercent(original) })
			lowerGCPercent(func(key string) string { return tc.env[key] })
			if got := debug.SetGCPercent(before); (got != before) != tc.set {
				t.Errorf("GC percent %d, of %d before", got, before)
			}
		})
	}
}

func TestGCPercent(t *testing.T) {
	start := time.Unix(0, 0)
	for name, tc := range map[string]struct {
		since    time.Duration
		percents map[uint64]int
	}{
		"busy": {busyTime, map[uint64]int{0: 400, 1 << 20: 400, 6 << 20: 200, 20 << 20: 60, 40 << 20: 30, 95 << 20: 30, 1 << 40: 30}},
		"idle": {busyTime + time.Second, map[uint64]int{0: 400, 1 << 20: 400, 4 << 20: 100, 6 << 20: 60, 20 << 20: 30, 95 << 20: 30, 1 << 40: 30}},
	} {
		for live, want := range tc.percents {
			if got := (collection{ended: start, garbage: busyGarbage}).next(live, start.Add(tc.since)); got.percent != want {
				t.Errorf("%s, %d MiB: %d %%, want %d %%", name, live>>20, got.percent, want)
			}
		}
	}
}

// The percentage of a process that always makes as much garbage changes once at most.
func TestGCPercentIsSteady(t *testing.T) {
	for _, live := range []uint64{2 << 20, 10 << 20, 30 << 20, 100 << 20} {
		for _, rate := range []float64{0.1, 0.4, 0.8, 1, 1.1, 1.3, 2, 10} {
			c, changes := collection{ended: time.Unix(0, 0)}.next(live, time.Unix(0, 0)), 0
			for range 20 {
				took := time.Duration(float64(c.garbage) / rate / (1 << 20) * float64(time.Second))
				next := c.next(live, c.ended.Add(took))
				if next.percent != c.percent {
					changes++
				}
				c = next
			}
			if changes > 1 {
				t.Errorf("%d MiB in use, %.1f MiB/s of garbage: %d changes", live>>20, rate, changes)
			}
		}
	}
}

// The percentage follows the memory in use from one collection to the next.
func TestAdjustGCPercent(t *testing.T) {
	original := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(original) })
	adjustGCPercent(collection{ended: time.Now()})
	small := debug.SetGCPercent(100)
	debug.SetGCPercent(small)
	kept := make([]byte, 100<<20)
	deadline := time.Now().Add(time.Minute)
	for {
		runtime.GC()
		got := debug.SetGCPercent(100)
		debug.SetGCPercent(got)
		if got == gcPercent {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("GC percent %d with 100 MiB in use, and %d before", got, small)
		}
		runtime.Gosched()
	}
	if small == gcPercent {
		t.Errorf("GC percent %d without", small)
	}
	runtime.KeepAlive(kept)
}
