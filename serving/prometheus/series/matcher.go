// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"context"
	"hash/fnv"
	"math/bits"
	"slices"
	"time"
)

// matcher is the state of one matcher, guarded by Discovery.mu.
type matcher struct {
	text string
	// phase in [0, 1) is its place in the interval.
	phase float64
	due   time.Time
	// cancel ends the look under way; nil where there is none.
	cancel   context.CancelFunc
	failures int
	// took is how long the last look took.
	took time.Duration
	// recovered is when a failed look was last brought forward as the source was back.
	recovered time.Time
	kinds     map[string]*kind
	found     *Found
}

// kind is a Series and when it was seen last.
type kind struct {
	Series
	seen time.Time
}

// merge takes in what was seen, and forgets what is too old. It says whether there
// was too much.
func (m *matcher) merge(r result, s Settings) (cut bool) {
	if m.kinds == nil {
		m.kinds = make(map[string]*kind, len(r.look.kinds))
	}
	for key, seen := range r.look.kinds {
		seen.Count = 1 << bits.Len(uint(seen.Count-1))
		if k := m.kinds[key]; k != nil {
			k.seen, k.Count = r.at, seen.Count
		}
	}
	oldest := r.at.Add(-s.MaxAge)
	for key, k := range m.kinds {
		if k.seen.Before(oldest) {
			delete(m.kinds, key)
		}
	}
	for key, seen := range r.look.kinds {
		switch {
		case m.kinds[key] != nil:
		case len(m.kinds) == MaxSeries:
			return true
		default:
			m.kinds[key] = &kind{Series: *seen, seen: r.at}
		}
	}
	return false
}

// series returns what is known in order.
func (m *matcher) series() []Series {
	all := make([]Series, 0, len(m.kinds))
	for _, k := range m.kinds {
		all = append(all, k.Series)
	}
	slices.SortFunc(all, Series.compare)
	return all
}

// phase places a matcher in the interval.
func phase(text string) float64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text))
	return float64(h.Sum32()) / (1 << 32)
}
