// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// sweepChunk is how many points a sweep holds at a time: for as long as a client
// does not read, these are all that its watcher keeps alive.
const sweepChunk = 32

// sweep goes through a source and hands out the newest point of each key, whatever
// its number, unless it was covered before. So it never leaves to the log what it
// came by: the initial events are complete when the sweep ends, however many points
// are renewed meanwhile.
type sweep struct {
	source    Source
	selection Selection
	// before is what was written or superseded already, and covered what is once
	// the sweep has ended.
	before, covered coverage
	// required are labels that the selection asks for.
	required []samplestore.Label

	after samplestore.Key
	chunk []Item
	// exhausted says that nothing comes after the chunk.
	exhausted bool
}

// next returns the next point, or nil.
func (s *sweep) next() Item {
	if len(s.chunk) == 0 {
		s.fetch()
	}
	if len(s.chunk) == 0 {
		return nil
	}
	item := s.chunk[0]
	s.chunk[0] = nil
	s.chunk = s.chunk[1:]
	return item
}

func (s *sweep) done() bool { return s.exhausted && len(s.chunk) == 0 }

func (s *sweep) fetch() {
	if key, one := s.selection.Key(); one && !s.exhausted {
		s.fetchOne(key)
	}
	for len(s.chunk) == 0 && !s.exhausted {
		s.fetchChunk()
	}
}

func (s *sweep) fetchOne(key samplestore.Key) {
	s.exhausted = true
	number := s.source.Sequence()
	item := s.source.Get(key)
	if item != nil && s.wants(item) {
		s.chunk = []Item{item}
		number = max(number, item.ItemSequence())
	}
	s.covered.end(number)
}

// fetchChunk takes the points after the last chunk. What it goes by is covered up
// to the number that was the newest when it began. It stops at a point that is newer,
// for the next chunk to begin with: of the keys before that one it is not known
// whether a point as new has come in behind it.
func (s *sweep) fetchChunk() {
	number := s.source.Sequence()
	s.chunk = make([]Item, 0, sweepChunk)
	for item := range s.source.Select(s.selection.Namespace, s.required, s.after) {
		if !s.wants(item) {
			continue
		}
		if len(s.chunk) == sweepChunk || item.ItemSequence() > number {
			if len(s.chunk) > 0 {
				s.covered.extend(s.after, number)
			}
			return
		}
		s.chunk = append(s.chunk, item)
		s.after = item.ItemKey()
	}
	s.covered.end(number)
	s.exhausted = true
}

func (s *sweep) wants(item Item) bool {
	return item.ItemSequence() > s.before.of(item.ItemKey()) && s.selection.matches(item)
}
