// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"slices"
	"sync"
	"time"
)

// newObjects are the objects that were created during the run. One replica may know of such an object seconds before
// another one, and each request may reach another replica: a response without it is no fault.
type newObjects struct {
	mu sync.Mutex
	// since is when each was first listed; the zero time of those that were there first.
	since map[string]time.Time
}

// residents takes in objects of the run's first lists.
func (n *newObjects) residents(resource string, objects []Object) {
	n.note(resource, objects, time.Time{})
}

// note takes in objects of a list that was asked for at that time.
func (n *newObjects) note(resource string, objects []Object, at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.since == nil {
		n.since = map[string]time.Time{}
	}
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
	t.newObjects.mu.Lock()
	defer t.newObjects.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.objects), func(o Object) bool {
		since, known := t.newObjects.since[t.resource.Name+" "+o.key()]
		return !known || l.began.Sub(since) < t.options.PointInterval+t.options.Patience
	})
}

// expected are the objects that every answer between two lists must have: those of
// both, except new ones.
func (t *target) expected(before, after *listing) map[string]Object {
	return lasting(&listing{objects: t.settled(before)}, after)
}
