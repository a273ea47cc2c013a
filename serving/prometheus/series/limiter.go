// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"slices"
	"time"
)

const (
	// maxFast limits the concurrent lookups without slow ones: they are expensive, and the
	// queries of autoscalers take precedence.
	maxFast = 2
	// maxSlow limits the lookups beside them that take longer than slowLookup, so that a
	// matcher that selects nearly everything, or hangs, does not delay the others.
	maxSlow    = 2
	slowLookup = 5 * time.Second
)

// limiter limits concurrent lookups. Only Run uses it.
type limiter struct {
	running []lookup
}

// lookup is a running lookup.
type lookup struct {
	matcher *matcher
	started time.Time
	// slow is set if the previous lookup of the matcher was slow.
	slow bool
}

func (l *lookup) isSlow(now time.Time) bool { return l.slow || now.Sub(l.started) >= slowLookup }

// acquire reports whether a lookup of the matcher may start now, and counts it if so.
func (l *limiter) acquire(now time.Time, m *matcher) bool {
	slow := 0
	for i := range l.running {
		if l.running[i].isSlow(now) {
			slow++
		}
	}
	expected := m.took >= slowLookup
	if expected && slow >= maxSlow || !expected && len(l.running)-min(slow, maxSlow) >= maxFast {
		return false
	}
	l.running = append(l.running, lookup{m, now, expected})
	return true
}

// release ends the lookup of a matcher.
func (l *limiter) release(m *matcher) {
	l.running = slices.DeleteFunc(l.running, func(r lookup) bool { return r.matcher == m })
}

// untilSlow returns the time until another running lookup counts as slow, and another may start.
func (l *limiter) untilSlow(now time.Time) time.Duration {
	next := idle
	for i := range l.running {
		if !l.running[i].isSlow(now) {
			next = min(next, l.running[i].started.Add(slowLookup).Sub(now))
		}
	}
	return next
}
