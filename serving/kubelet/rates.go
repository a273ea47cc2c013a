// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"math"
	"time"
)

// The rules for rates. docs/resource-metrics.md states them for users: change both.
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
)

// rateRules are the bounds that depend on the settings.
type rateRules struct {
	// maxFreshWindow is the age up to which a container's first rate may be
	// calculated from its start. The last scrape did not miss an older one, so that
	// rate would average its whole life.
	maxFreshWindow time.Duration
	// maxWindow is the longest window of a rate; a longer average says too little
	// about the present.
	maxWindow time.Duration
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
	// complete: its rate and its memory are known.
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
		// rises: then its memory could not be read.
		if c.baseline.known() && c.cpuTime > c.baseline.time {
			c.idle = c.cpu == c.baseline.cpu
		}
		c.updateRate(r, stats)
		if c.idle {
			c.status = notRunning
		}
	default:
		c.idle = false
		c.updateRate(r, stats)
		if c.rate.known() {
			c.status = complete
		}
	}
}

// updateRate calculates the rate between the baseline and the newest CPU sample,
// and makes the latter the baseline.
func (c *container) updateRate(r rateRules, stats *parseStats) {
	if c.start > c.cpuTime {
		// The sample is of an earlier run of the container.
		c.baseline, c.rate = baseline{}, cpuRate{}
		return
	}
	restarted := c.start != 0 && c.baseline.start != 0 && c.start != c.baseline.start
	elapsed := time.Duration(c.cpuTime-c.baseline.time) * time.Millisecond
	switch {
	case !c.baseline.known():
	case restarted:
	case elapsed == 0:
		// The sample is not new, so the last rate is still the newest.
		return
	case elapsed > 0 && elapsed < minWindow:
		// Too soon; it will be part of the next window.
		return
	case elapsed < 0 || elapsed > r.maxWindow:
		// The clock was set back, or the last sample is too old.
	case c.cpu < c.baseline.cpu:
		// The counter was reset.
	default:
		c.setRate(c.cpu-c.baseline.cpu, elapsed, stats)
		c.setBaseline()
		return
	}
	c.rate = cpuRate{}
	age := time.Duration(c.cpuTime-c.start) * time.Millisecond
	// With a baseline of the same run, the counter did not rise from the start as it
	// should have, so the start proves nothing.
	firstOfRun := !c.baseline.known() || restarted
	if c.start != 0 && age >= minFreshWindow && age <= r.maxFreshWindow && firstOfRun {
		// The counter was zero at the start.
		c.setRate(c.cpu, age, stats)
	}
	c.setBaseline()
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

func (c *container) setBaseline() {
	start := c.start
	if start == 0 {
		// The series may be missing in a single body.
		start = c.baseline.start
	}
	c.baseline = baseline{cpu: c.cpu, time: c.cpuTime, start: start}
}
