// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"container/list"
)

// Connection is a watch that an Admission counts.
type Connection struct {
	admission *Admission
	user      *userWatches
	tenant    *tenant

	// The Admission's mutex guards these.

	// replaces says that it was admitted over a limit, and is not open yet.
	replaces bool
	// element is its place among the open watches of the tenant.
	element           *list.Element
	end               func()
	evicted, released bool
}

// Opened says that the watch is open. end ends it when a tenant with fewer watches needs its
// place: it is called at most once, and may be called before Opened returns.
//
// Another watch is only ended now and not when this one is admitted, so that requests that fail
// cost others nothing.
func (c *Connection) Opened(end func()) {
	a := c.admission
	a.mu.Lock()
	var evicted *Connection
	if !c.released {
		c.end = end
		c.element = c.tenant.opened.PushBack(c)
		if c.replaces {
			a.replacing--
			c.replaces = false
			if a.over(c.tenant) {
				evicted = a.evict(c)
			}
		}
	}
	a.mu.Unlock()
	if evicted != nil {
		evicted.end()
	}
}

// Release ends the count. It must be called exactly once.
func (c *Connection) Release() {
	a := c.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	c.released = true
	if c.evicted {
		a.ending--
		return
	}
	if c.replaces {
		a.replacing--
	}
	a.uncount(c)
}

// count counts a connection of a tenant and of its user.
func (a *Admission) count(c *Connection) {
	c.user.open++
	a.poolOf(c.tenant).count(c.tenant, 1)
	a.tenants[c.tenant.tenantKey] = c.tenant
}

func (a *Admission) uncount(c *Connection) {
	c.user.open--
	if c.element != nil {
		c.tenant.opened.Remove(c.element)
	}
	a.poolOf(c.tenant).count(c.tenant, -1)
	if c.tenant.open == 0 {
		delete(a.tenants, c.tenant.tenantKey)
	}
}

// poolOf returns the pool of a tenant.
func (a *Admission) poolOf(t *tenant) *pool {
	if t.system {
		return &a.system
	}
	return &a.others
}

// over reports whether more watches are counted than a tenant may fill up to.
func (a *Admission) over(t *tenant) bool {
	return a.system.open+a.others.open > a.limits.Connections || !t.system && a.others.open > a.limits.unreserved()
}

// victim returns the tenant that has to give up a watch once there are too many: the largest of
// those that use more than is theirs.
func (a *Admission) victim() *tenant {
	system, others := a.system.largest(), a.others.largest()
	if a.others.open > a.limits.unreserved() || system == nil || others != nil && others.open >= system.open {
		return others
	}
	return system
}

// mayReplace reports whether a tenant, whose new watch is counted, may have the place of
// another's: if it has fewer than the victim even so, or is within the reserve. The watch that
// ends stays open until its client has read the last event, so only some are replaced at a time.
func (a *Admission) mayReplace(t *tenant) bool {
	victim := a.victim()
	return (t.open < victim.open || t.system && !victim.system && a.system.open <= a.limits.reserve()) &&
		a.replacing+a.ending < max(1, a.limits.reserve())
}

// evict takes the place of the newest watch of the victim, and returns it to be ended. A watch that
// is still being opened cannot be; if the victim has no other, the new one ends.
func (a *Admission) evict(admitted *Connection) *Connection {
	c := admitted
	if newest := a.victim().opened.Back(); newest != nil {
		c = newest.Value.(*Connection)
	}
	a.uncount(c)
	c.evicted = true
	a.ending++
	evictedTotal.Inc()
	return c
}
