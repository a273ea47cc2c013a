// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"math"
	"time"
)

// The rules for rates. docs/concepts/resource-metrics.md states them for users: change both.
const (
	// minWindow is the shortest window of a rate. Below it, the resolution of the
	// timestamps (1 ms) and of the kernel's accounting show.
	minWindow = time.Second
	// minFreshWindow is the age from which a container's first rate may be
	// calculated from its start; a shorter one would mostly be its startup.
	minFreshWindow = 10 * time.Second
	// longestHousekeeping is the longest time between two samples of a container
	// in cAdvisor: 15 s for an idle one, with a jitter of the same.
	longestHousekeeping = 30 * time.Second
	// maxCores bounds plausible rates; the largest machines have some thousand.
	maxCores = 1 << 16
	// maxUnseenCores bounds a container's use while the node's samples do not tell that of
	// the node. More is rare so soon after a start, and only withholds the first rate.
	maxUnseenCores = 16
)

// rateRules are the bounds that depend on the settings and on the node.
type rateRules struct {
	// maxFreshWindow is the age up to which a container's first rate may be
	// calculated from its start. The last scrape did not miss an older one, so that
	// rate would average its whole life.
	maxFreshWindow time.Duration
	// maxWindow is the longest window of a rate; a longer average says too little
	// about the present.
	maxWindow time.Duration
	// node bounds the rates from a start: a container used no more than its node.
	node *container
}

func rateRulesFor(interval time.Duration) rateRules {
	return rateRules{
		maxFreshWindow: interval + longestHousekeeping,
		maxWindow:      max(5*time.Minute, 5*interval),
	}
}

// containerStatus says whether a container can be part of its pod's point.
type containerStatus uint8

const (
	// incomplete: it runs, but its rate or its memory is unknown.
	incomplete containerStatus = iota
	// notRunning: no process runs in it, so it does not count.
	notRunning
	// complete: its rate and its memory are known, or the memory is zero, which the pod
	// decides on.
	complete
)

// update applies the rules to the samples of the last body and sets c.status.
//
// A kubelet writes zero for an unknown value: its stats provider fills in missing
// CPU counters and working sets, and no process runs without using some of each.
func (c *container) update(r rateRules, stats *parseStats) {
	c.status = incomplete
	switch {
	case !c.has(seriesCPU | seriesMemory):
	case c.cpu == 0:
		if c.memory == 0 {
			c.status = notRunning
		}
	case c.memory == 0:
		// The container has ended and its cgroup remains, unless the counter still
		// rises: then it sleeps most of the time, or its memory could not be read.
		if c.baseline.known() && c.cpuTime > c.baseline.time {
			c.idle = c.cpu == c.baseline.cpu
		}
		c.updateRate(r, stats)
		if c.idle {
			c.status = notRunning
		} else if c.rate.known() && c.pod != nil {
			c.status = complete
		}
	default:
		c.idle = false
		c.updateRate(r, stats)
		if c.rate.known() {
			c.status = complete
		}
	}
}

// updateRate calculates the rate up to the newest CPU sample, and makes the sample the
// baseline. A counter that did not decrease went on, whatever the start says: some
// runtimes report a start that moves.
func (c *container) updateRate(r rateRules, stats *parseStats) {
	elapsed := time.Duration(c.cpuTime-c.baseline.time) * time.Millisecond
	if c.baseline.known() && elapsed >= 0 && elapsed < minWindow {
		// The sample is not new, so the last rate is still the newest; or it is too
		// close, and will be part of the next window.
		return
	}
	wentOn := c.baseline.known() && c.cpu >= c.baseline.cpu
	isNew := c.isNewRun(r.node)
	age := time.Duration(c.cpuTime-c.start) * time.Millisecond
	minAge := minFreshWindow
	if b := c.baseline; b.known() && b.time-b.start < minFreshWindow.Milliseconds() {
		// The run before was too young, too. A container that keeps restarting would
		// never be old enough, and its pod never have a point.
		minAge = 0
	}
	switch {
	case wentOn && elapsed > 0 && elapsed <= r.maxWindow:
		c.setRate(c.cpu-c.baseline.cpu, elapsed, stats)
	case !wentOn && isNew && age >= minAge && age <= r.maxFreshWindow:
		// The counter was zero at the start.
		c.setRate(c.cpu, max(age, minWindow), stats)
	default:
		// The first sample, the last one is too old, or the clock or the counter was
		// set back.
		c.rate = cpuRate{}
	}
	// The rules for pods on two nodes, and for recreated pods, need the start of a new run, also
	// if its counter is not lower. The new one's may be missing in this body.
	start := c.baseline.start
	if start == 0 || !wentOn || isNew {
		start = c.start
	}
	c.baseline = baseline{cpu: c.cpu, time: c.cpuTime, start: start}
}

// isNewRun reports whether the container started after its last sample or, if it is new, after the
// last body of its node, and can have used its whole counter since.
func (c *container) isNewRun(node *container) bool {
	after := c.baseline.runsAfter()
	return after != 0 && c.start > after && c.start < c.cpuTime &&
		node.allows(c.cpu, min(c.start, c.cpuTime-minWindow.Milliseconds()), c.cpuTime)
}

// allows reports whether a container of the node c can have used so many core-seconds between two
// times: at most what the node used between its last two samples, and maxUnseenCores in the time
// that is not between them. Without a rate of the node that is all of the time.
func (c *container) allows(used float64, from, to int64) bool {
	r := c.rate
	unseen := to - from - max(0, min(to, r.time)-max(from, r.time-r.window))
	ofNode := float64(r.cpu+1) / 1e9 * float64(r.window) / 1e3 // r.cpu is rounded
	return used <= ofNode+maxUnseenCores*float64(unseen)/1e3
}

// setRate sets the rate of a number of core-seconds in a window.
func (c *container) setRate(used float64, window time.Duration, stats *parseStats) {
	cores := used / window.Seconds()
	if cores > maxCores {
		stats.skip(skipImplausible, []byte(c.String()))
		c.rate = cpuRate{}
		return
	}
	c.rate = cpuRate{
		cpu:    uint64(math.Round(cores * 1e9)),
		window: window.Milliseconds(),
		time:   c.cpuTime,
	}
}
