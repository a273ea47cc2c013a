// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"slices"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// maxRanges bounds watermarks to some 10 kB.
const maxRanges = 256

// watermarks hold the number up to which the points of each key were written, or superseded by
// one that was. Keys differ during a scan and for a while after it, since points are stored
// meanwhile.
type watermarks struct {
	// floor is a lower bound for every key.
	floor uint64
	// ranges are in ascending order of keys and numbers; rest is for the keys after them.
	ranges []keyRange
	rest   uint64
}

// keyRange has the watermark of the keys after the previous range.
type keyRange struct {
	through samplestore.Key
	number  uint64
}

// get returns the watermark of a key.
func (m *watermarks) get(key samplestore.Key) uint64 {
	i, _ := slices.BinarySearchFunc(m.ranges, key, func(r keyRange, k samplestore.Key) int { return r.through.Compare(k) })
	if i < len(m.ranges) {
		return max(m.floor, m.ranges[i].number)
	}
	return max(m.floor, m.rest)
}

// extend sets the watermark of the keys after the last range, through a key.
func (m *watermarks) extend(through samplestore.Key, number uint64) {
	if last := len(m.ranges) - 1; last >= 0 && m.ranges[last].number == number {
		m.ranges[last].through = through
		return
	}
	if len(m.ranges) == maxRanges {
		m.merge()
	}
	m.ranges = append(m.ranges, keyRange{through, number})
}

// extendToEnd sets the watermark of all keys after the last range.
func (m *watermarks) extendToEnd(number uint64) {
	m.rest = number
	if len(m.ranges) == 0 || m.ranges[0].number >= number {
		m.raise(number)
	}
}

// merge joins pairs of ranges. The lower number is kept, so that no point is lost; a slow client
// may get a point twice.
func (m *watermarks) merge() {
	for i := range len(m.ranges) / 2 {
		m.ranges[i] = keyRange{through: m.ranges[2*i+1].through, number: m.ranges[2*i].number}
	}
	m.ranges = m.ranges[:len(m.ranges)/2]
}

// raise raises the watermarks of all keys to at least a number.
func (m *watermarks) raise(number uint64) {
	m.floor = max(m.floor, number)
	if m.floor >= m.rest {
		m.ranges, m.rest = nil, 0
	}
}
