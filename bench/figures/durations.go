// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package figures sums up many measurements.
package figures

import (
	"math"
	"slices"
	"time"
)

// Durations are single measurements, kept whole: a histogram's buckets would
// decide what a quantile can be.
type Durations struct {
	all    []time.Duration
	sorted bool
}

// Add a measurement.
func (d *Durations) Add(one time.Duration) {
	d.all = append(d.all, one)
	d.sorted = false
}

// Merge adds all of another.
func (d *Durations) Merge(other *Durations) {
	d.all = append(d.all, other.all...)
	d.sorted = false
}

// Len is how many there are.
func (d *Durations) Len() int { return len(d.all) }

// Quantile is the smallest measurement that is not below a share q of all, 0 when
// there are none.
func (d *Durations) Quantile(q float64) time.Duration {
	if len(d.all) == 0 {
		return 0
	}
	if !d.sorted {
		slices.Sort(d.all)
		d.sorted = true
	}
	i := int(math.Ceil(q*float64(len(d.all)))) - 1
	return d.all[min(max(i, 0), len(d.all)-1)]
}
