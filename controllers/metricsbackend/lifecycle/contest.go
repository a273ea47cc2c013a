// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"slices"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/internal/apiservices"
)

const (
	// ContestLimit bounds how often one APIService is written against the same field manager within
	// ContestWindow. An edit by hand is corrected; without the limit, two controllers would overwrite
	// each other for ever.
	ContestLimit = 3
	// ContestWindow is the time in which these writes are counted.
	ContestWindow = 6 * time.Hour
)

// Contest counts the writes of one APIService against other field managers, for one generation of
// the spec.
type Contest struct {
	Generation int64
	// Written: we have written the APIService before.
	Written bool
	// AuthorityAdded: we have added our authority to the caBundle of someone else's APIService.
	// AuthorityRemoved is when another manager was found to have taken it out again, or zero.
	AuthorityAdded   bool
	AuthorityRemoved time.Time
	writes           map[string][]time.Time
	// stopped is when the operator stopped writing, or zero. After a ContestWindow one more write
	// tests whether the other manager still changes the APIService back.
	stopped time.Time
}

// Paused reports whether nothing may be written for now.
func (c *Contest) Paused(now time.Time) bool {
	return !c.stopped.IsZero() && now.Sub(c.stopped) < ContestWindow
}

// Over reports whether our last write has stayed for a ContestWindow after the contest was stopped:
// the other manager may only be slow.
func (c *Contest) Over(now time.Time) bool { return !c.stopped.IsZero() && !c.Paused(now) }

// Stop pauses all writes, unless they are paused.
func (c *Contest) Stop(now time.Time) {
	if !c.Paused(now) {
		c.stopped = now
	}
}

// mayWrite reports whether one more write against the field manager may be made.
func (c *Contest) mayWrite(manager string, now time.Time) bool {
	if !c.stopped.IsZero() {
		return !c.Paused(now)
	}
	return len(c.recent(manager, now)) < ContestLimit
}

// Count counts a write against the field manager. The write after a pause starts the next one.
func (c *Contest) Count(manager string, now time.Time) {
	if !c.stopped.IsZero() {
		c.stopped = now
		return
	}
	if c.writes == nil {
		c.writes = map[string][]time.Time{}
	}
	c.writes[manager] = append(c.recent(manager, now), now)
}

func (c *Contest) recent(manager string, now time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(c.writes[manager]), func(at time.Time) bool { return now.Sub(at) >= ContestWindow })
}

// isContested reports whether another field manager keeps changing what differs from the target.
func (v *Version) isContested() bool {
	manager, contested := v.Identity.ConflictingManager(v.Live)
	return contested && !v.Contest.mayWrite(manager, v.Now)
}

func (v *Version) describeContest() string {
	who, where := "someone", ", to "+DescribeTarget(v.Live)
	if manager, _ := v.Identity.ConflictingManager(v.Live); manager != "" {
		who = "field manager \"" + manager + "\""
	}
	if v.pointsToTarget() {
		where = ""
	}
	return fmt.Sprintf("APIService %s is contested: %s keeps changing it back%s, so the operator has stopped to write it. Take it out of what that "+
		"applies, then delete it (kubectl delete apiservice %s) and it is registered again; or leave it to them "+
		"by taking version %s out of %s.versions. The operator tries once more every %d hours, and after a change of the spec%s",
		v.Name(), who, where, v.Name(), v.GV.Version, v.Section, int(ContestWindow.Hours()), apiservices.ManagedBy(v.Live))
}
