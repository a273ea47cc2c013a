// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package heap measures the heap of the process that a test runs in.
package heap

import (
	"math"
	"runtime"
	"slices"
)

// InUse returns the bytes that are reachable. Goroutines that are about to end may still hold
// some, so it reads until two figures are nearly the same, ten times at most.
func InUse() float64 {
	last := read()
	for range 10 {
		now := read()
		if math.Abs(now-last) < 4<<10 {
			return now
		}
		last = now
	}
	return last
}

func read() float64 {
	runtime.GC()
	runtime.GC() // the second one empties pools
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

// Retained returns the bytes that the result of build keeps alive: the median of three times, since
// what earlier tests left behind may be freed in the meantime.
func Retained[T any](build func() T) float64 {
	runs := make([]float64, 3)
	for i := range runs {
		before := InUse()
		kept := build()
		runs[i] = InUse() - before
		runtime.KeepAlive(kept)
	}
	slices.Sort(runs)
	return runs[len(runs)/2]
}
