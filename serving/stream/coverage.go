// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"slices"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// maxSpans bounds a coverage to some 10 kB.
const maxSpans = 256

// coverage says up to which number the points of a key were written, or superseded
// by one that was. It is not the same for all keys while a sweep goes through
// them and for a while after it, since points are stored meanwhile.
type coverage struct {
	// all is the number for every key, unless what follows tells of a higher one.
	all uint64
	// spans are ordered, by key and by number; rest is for the keys after them.
	spans []span
	rest  uint64
}

// span is the number for the keys after those of the span before it.
type span struct {
	through samplestore.Key
	number  uint64
}

// of returns the number up to which the points of a key are covered.
func (c *coverage) of(key samplestore.Key) uint64 {
	i, _ := slices.BinarySearchFunc(c.spans, key, func(s span, k samplestore.Key) int { return s.through.Compare(k) })
	if i < len(c.spans) {
		return max(c.all, c.spans[i].number)
	}
	return max(c.all, c.rest)
}

// extend covers the keys up to one, from the last one that was given.
func (c *coverage) extend(through samplestore.Key, number uint64) {
	if last := len(c.spans) - 1; last >= 0 && c.spans[last].number == number {
		c.spans[last].through = through
		return
	}
	if len(c.spans) == maxSpans {
		c.coarsen()
	}
	c.spans = append(c.spans, span{through, number})
}

// end covers all keys after the last one that was given.
func (c *coverage) end(number uint64) {
	c.rest = number
	if len(c.spans) == 0 || c.spans[0].number >= number {
		c.raise(number)
	}
}

// coarsen halves the spans. Of two that become one the lower number holds, so that
// nothing is lost; a slow client may come to see a point twice.
func (c *coverage) coarsen() {
	for i := range len(c.spans) / 2 {
		c.spans[i] = span{through: c.spans[2*i+1].through, number: c.spans[2*i].number}
	}
	c.spans = c.spans[:len(c.spans)/2]
}

// raise covers all keys up to a number.
func (c *coverage) raise(number uint64) {
	c.all = max(c.all, number)
	if c.all >= c.rest {
		c.spans, c.rest = nil, 0
	}
}
