// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// scanChunk is how many points a scan holds at a time. A watcher keeps no more alive while its
// client does not read.
const scanChunk = 32

// scan returns the newest point of each selected key in the source that is above the key's
// watermark. It also returns points that are stored while it runs: the initial events are
// complete when it ends, even if points are replaced all the time.
type scan struct {
	source    Source
	selection Selection
	// before are the watermarks at the start, and covered those at the end.
	before, covered watermarks
	// required are labels that the selection requires.
	required []samplestore.Label

	after samplestore.Key
	chunk []Item
	// exhausted says that nothing comes after the chunk.
	exhausted bool
}

// next returns the next point, or nil.
func (s *scan) next() Item {
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

func (s *scan) done() bool { return s.exhausted && len(s.chunk) == 0 }

func (s *scan) fetch() {
	if key, one := s.selection.Key(); one && !s.exhausted {
		s.fetchOne(key)
	}
	for len(s.chunk) == 0 && !s.exhausted {
		s.fetchChunk()
	}
}

func (s *scan) fetchOne(key samplestore.Key) {
	s.exhausted = true
	number := s.source.Sequence()
	item := s.source.Get(key)
	if item != nil && s.wants(item) {
		s.chunk = []Item{item}
		number = max(number, item.ItemSequence())
	}
	s.covered.extendToEnd(number)
}

// fetchChunk reads the points after the last chunk and raises their watermarks to the newest
// number at its start. It stops before a point that is newer, which begins the next chunk: a
// point as new may have been stored for an earlier key after that was read.
func (s *scan) fetchChunk() {
	number := s.source.Sequence()
	s.chunk = make([]Item, 0, scanChunk)
	for item := range s.source.Select(s.selection.Namespace, s.required, s.after) {
		if !s.wants(item) {
			continue
		}
		if len(s.chunk) == scanChunk || item.ItemSequence() > number {
			if len(s.chunk) > 0 {
				s.covered.extend(s.after, number)
			}
			return
		}
		s.chunk = append(s.chunk, item)
		s.after = item.ItemKey()
	}
	s.covered.extendToEnd(number)
	s.exhausted = true
}

func (s *scan) wants(item Item) bool {
	return item.ItemSequence() > s.before.get(item.ItemKey()) && s.selection.matches(item)
}
