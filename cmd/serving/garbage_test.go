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

func TestGCPercentOf(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 1 << 20: 400, 6 << 20: 200, 20 << 20: 60, 40 << 20: 30, 95 << 20: 30, 1 << 40: 30} {
		if got := gcPercentOf(live); got != want {
			t.Errorf("%d MiB: %d %%, want %d %%", live>>20, got, want)
		}
	}
}

// The percentage follows the memory in use from one collection to the next.
func TestAdjustGCPercent(t *testing.T) {
	original := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(original) })
	adjustGCPercent(0)
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
