// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package heap measures the heap of the process that a test runs in.
package heap

import (
	"runtime"
	"slices"
)

// InUse returns the bytes that are reachable.
func InUse() float64 {
	runtime.GC()
	runtime.GC() // the second one empties pools
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

// Retained returns the bytes that the result of build keeps alive, see Median.
func Retained[T any](build func() T) float64 {
	return Median(func() float64 {
		before := InUse()
		kept := build()
		after := InUse()
		runtime.KeepAlive(kept)
		return after - before
	})
}

// Median returns the median of several measurements, since goroutines that earlier tests left behind
// allocate and free in the meantime.
func Median(measure func() float64) float64 {
	runs := make([]float64, 3)
	for i := range runs {
		runs[i] = measure()
	}
	slices.Sort(runs)
	return runs[len(runs)/2]
}
