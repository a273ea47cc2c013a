// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"time"
)

// resolution and span of Ages. Older values count as the oldest.
const (
	resolution = 10 * time.Millisecond
	span       = 2 * time.Minute
)

// Ages is the distribution of the ages of values over time, with equal weight for each
// time. A value that arrived at age a and was replaced at age b had each age in between
// for the same time.
type Ages struct {
	// slope is the difference of weights between an age and the previous one, so that a
	// range of ages costs two additions.
	slope [span/resolution + 2]int64
}

// Add adds a value that existed while its age grew from one to another.
func (a *Ages) Add(from, to time.Duration) {
	first, last := bucket(from), bucket(to)
	if last < first {
		return
	}
	a.slope[first]++
	a.slope[last+1]--
}

func bucket(age time.Duration) int {
	return int(min(max(age, 0), span) / resolution)
}

// Merge adds the measurements of another.
func (a *Ages) Merge(other *Ages) {
	for i, s := range other.slope {
		a.slope[i] += s
	}
}

// Distribution returns the ages in steps of the resolution, and the cumulative share of
// each.
func (a *Ages) Distribution() (ages []time.Duration, shares []float64) {
	var weight, total int64
	weights := make([]int64, len(a.slope))
	for i, s := range a.slope {
		weight += s
		total += weight
		weights[i] = total
	}
	if total == 0 {
		return nil, nil
	}
	for i, w := range weights[:len(weights)-1] {
		ages = append(ages, time.Duration(i)*resolution)
		shares = append(shares, float64(w)/float64(total))
	}
	return ages, shares
}

// Quantile returns the q-quantile of the ages, or 0 if nothing was added.
func (a *Ages) Quantile(q float64) time.Duration {
	ages, shares := a.Distribution()
	for i, share := range shares {
		if share >= q {
			return ages[i]
		}
	}
	return 0
}
