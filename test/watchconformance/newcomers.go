// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"slices"
	"sync"
	"time"
)

// newcomers are the objects that came during the run. One replica may know of such an
// object some seconds before another one does, and each request may be another's: that
// an answer is without it says nothing.
type newcomers struct {
	mu sync.Mutex
	// since is when each was first listed; the zero time of those that were there first.
	since map[string]time.Time
}

func newNewcomers() *newcomers { return &newcomers{since: map[string]time.Time{}} }

// residents takes in objects of the run's first lists.
func (n *newcomers) residents(resource string, objects []Object) {
	n.note(resource, objects, time.Time{})
}

// note takes in objects of a list that was asked for at that time.
func (n *newcomers) note(resource string, objects []Object, at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range objects {
		key := resource + " " + o.key()
		if first, known := n.since[key]; !known || at.Before(first) {
			n.since[key] = at
		}
	}
}

// settled are the objects of a list, in its order, that every replica must have known
// by then: each has an interval to sample what is new.
func (t *target) settled(l *listing) []Object {
	t.newcomers.mu.Lock()
	defer t.newcomers.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.objects), func(o Object) bool {
		since, known := t.newcomers.since[t.resource.Name+" "+o.key()]
		return !known || l.began.Sub(since) < t.options.PointInterval+t.options.Patience
	})
}

// expected are the objects that every answer between two lists must have: those of
// both, but for newcomers.
func (t *target) expected(before, after *listing) map[string]Object {
	return lasting(&listing{objects: t.settled(before)}, after)
}
