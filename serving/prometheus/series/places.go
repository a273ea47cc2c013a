// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"slices"
	"time"
)

const (
	// maxQuick bounds the looks under way at a time but for slow ones: they are dear, and
	// questions of autoscalers come first.
	maxQuick = 2
	// maxSlow bounds those beside them that take longer than slowLook. A matcher that
	// selects nearly everything, or that hangs, keeps the others waiting no longer.
	maxSlow  = 2
	slowLook = 5 * time.Second
)

// places are those of the looks under way. Run alone uses them.
type places struct {
	taken []place
}

type place struct {
	matcher *matcher
	began   time.Time
	// slow is that the look before took long, so that this one will.
	slow bool
}

func (p *place) isSlow(now time.Time) bool { return p.slow || now.Sub(p.began) >= slowLook }

// take takes a place for a look that begins now, if there is one for it.
func (p *places) take(now time.Time, m *matcher) bool {
	slow := 0
	for i := range p.taken {
		if p.taken[i].isSlow(now) {
			slow++
		}
	}
	expected := m.took >= slowLook
	if expected && slow >= maxSlow || !expected && len(p.taken)-min(slow, maxSlow) >= maxQuick {
		return false
	}
	p.taken = append(p.taken, place{m, now, expected})
	return true
}

// free gives back the place of a matcher's look.
func (p *places) free(m *matcher) {
	p.taken = slices.DeleteFunc(p.taken, func(taken place) bool { return taken.matcher == m })
}

// slower is how long it takes until another look becomes a slow one, and leaves its place.
func (p *places) slower(now time.Time) time.Duration {
	next := idle
	for i := range p.taken {
		if !p.taken[i].isSlow(now) {
			next = min(next, p.taken[i].began.Add(slowLook).Sub(now))
		}
	}
	return next
}
