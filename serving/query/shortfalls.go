// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"sync/atomic"
	"time"
)

// Shortfalls keeps one Shortfall of all questions of one Origin, which may be very many.
// It stays while it is repeated, rather than take turns with those of other questions, and
// goes when a newer answer to its question has what was missing, or when it has not been
// repeated for 4 intervals, at least a minute. A question that fails counts for more than
// an answer that lacks something. The zero value is ready, and nil keeps nothing.
type ProblemTracker struct{ kept atomic.Pointer[QueryProblem] }

// Now returns what is kept and holds now; nil for nothing.
func (s *ProblemTracker) Current(now time.Time) *QueryProblem {
	kept := s.kept.Load()
	if kept != nil && kept.apart(now, kept.lasts()) {
		s.kept.CompareAndSwap(kept, nil)
		return nil
	}
	return kept
}

// note takes in what came of a reading. It neither locks nor allocates where nothing is
// missing, as nearly always. Of two at a time one may be lost: there is another soon.
func (s *ProblemTracker) observe(r *MetricQuery, answer *Result, err error, v *Values, objects []string) {
	if s == nil {
		return
	}
	kept := s.kept.Load()
	found := r.shortfall(answer, v, err)
	switch {
	case kept == nil && found == nil:
	case kept == nil:
		s.kept.CompareAndSwap(nil, found)
	case kept.repeated(found, v):
		if found.Time.After(kept.Time) {
			renewed := *kept // in the same words: a status is written when they change
			renewed.Time = found.Time
			s.kept.CompareAndSwap(kept, &renewed)
		}
	case err == nil && kept.mended(r, v, objects),
		found != nil && (found.Failure != nil && kept.Failure == nil || kept.apart(found.Time, kept.lasts()/2)):
		s.kept.CompareAndSwap(kept, found)
	}
}
