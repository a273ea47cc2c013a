// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"github.com/metricsbackend/metrics-backend-operator/serving/point"
)

// sweepChunk is how many points a sweep holds at a time: for as long as a client
// does not read, these are all that its watcher keeps alive.
const sweepChunk = 32

// sweep goes through a source for the points with since < number <= until. Newer
// ones are in the group's log.
type sweep struct {
	source       Source
	selection    Selection
	since, until uint64
	// required are labels that the selection asks for.
	required []point.Label

	after point.Key
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
	if s.exhausted {
		return
	}
	if key, one := s.selection.key(); one {
		s.exhausted = true
		if item := s.source.Get(key); item != nil && s.wants(item) {
			s.chunk = []Item{item}
		}
		return
	}
	s.chunk = make([]Item, 0, sweepChunk)
	for item := range s.source.Select(s.selection.Namespace, s.required, s.after) {
		if !s.wants(item) {
			continue
		}
		if len(s.chunk) == sweepChunk {
			return
		}
		s.chunk = append(s.chunk, item)
		s.after = item.ItemKey()
	}
	s.exhausted = true
}

func (s *sweep) wants(item Item) bool {
	sequence := item.ItemSequence()
	return sequence > s.since && sequence <= s.until && s.selection.matches(item)
}
