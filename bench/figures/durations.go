// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package figures aggregates measurements.
package figures

import (
	"math"
	"slices"
	"time"
)

// Durations are the single measurements, since a histogram's buckets would limit the
// precision of quantiles.
type Durations struct {
	all    []time.Duration
	sorted bool
}

// Add adds a measurement.
func (d *Durations) Add(one time.Duration) {
	d.all = append(d.all, one)
	d.sorted = false
}

// Merge adds the measurements of another.
func (d *Durations) Merge(other *Durations) {
	d.all = append(d.all, other.all...)
	d.sorted = false
}

// Len returns the number of measurements.
func (d *Durations) Len() int { return len(d.all) }

// Quantile returns the q-quantile of the measurements, or 0 if there are none.
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
