// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"context"
	"math/bits"
	"slices"
	"time"
)

// matcher is the state of one series selector, guarded by Discovery.mu.
type matcher struct {
	text string
	due  time.Time
	// cancel ends the running lookup; nil if none is running.
	cancel   context.CancelFunc
	failures int
	// took is the duration of the last lookup.
	took time.Duration
	// retried is when a failed lookup was last repeated early because the source recovered.
	retried time.Time
	known   map[string]*knownSeries // nil before the first lookup that succeeded
	found   *Found
	ended   time.Time // see Found
}

// knownSeries is a Series and the time of the last lookup that returned it.
type knownSeries struct {
	Series
	seen time.Time
}

// merge adds the series of a lookup and removes those that are too old. It reports whether
// some were left out because there are too many.
func (m *matcher) merge(r result, s Settings) (truncated bool) {
	if m.known == nil {
		m.known = make(map[string]*knownSeries, len(r.series.byKey))
	}
	var fresh []string
	for key, found := range r.series.byKey {
		found.Count = 1 << bits.Len(uint(found.Count-1))
		if k := m.known[key]; k != nil {
			k.seen, k.Count = r.at, found.Count
		} else {
			fresh = append(fresh, key)
		}
	}
	oldest := r.at.Add(-s.MaxAge)
	size := 0
	for key, k := range m.known {
		if k.seen.Before(oldest) {
			delete(m.known, key)
			m.ended = later(m.ended, k.seen)
			continue
		}
		size += seriesSize(len(key), len(k.Labels))
	}
	slices.Sort(fresh) // so that all replicas keep the same ones
	for _, key := range fresh {
		found := r.series.byKey[key]
		if size += seriesSize(len(key), len(found.Labels)); len(m.known) == MaxSeries || size > maxLookupSize {
			return true
		}
		m.known[key] = &knownSeries{Series: *found, seen: r.at}
	}
	return false
}

// series returns the known series in order.
func (m *matcher) series() []Series {
	all := make([]Series, 0, len(m.known))
	for _, k := range m.known {
		all = append(all, k.Series)
	}
	slices.SortFunc(all, Series.compare)
	return all
}
