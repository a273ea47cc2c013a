// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"math"
	"time"
)

// The rules by which samples become rates. docs/resource-metrics.md states them
// for users; a change here is a change there.
const (
	// minWindow is the shortest window of a rate: below it the resolution of the
	// timestamps, a millisecond, and of the kernel's accounting show.
	minWindow = time.Second
	// minFreshWindow is the age from which a container's first rate may be taken
	// from its start; before, starting up is most of what it did.
	minFreshWindow = 10 * time.Second
	// longestHousekeeping is the longest that cAdvisor leaves between two samples
	// of a container: 15 s for an idle one, with a jitter of as much again.
	longestHousekeeping = 30 * time.Second
	// maxCores bounds a plausible rate; the largest machines have some thousand.
	maxCores = 1 << 16
)

// rules are the bounds that depend on the settings.
type rules struct {
	// maxFreshWindow is the age up to which a container's first rate may be taken
	// from its start: one that is older was not missed by the last scrape, so its
	// whole life would be passed off as its present.
	maxFreshWindow time.Duration
	// maxWindow is the longest window of a rate: an average over a longer time
	// says too little of the present.
	maxWindow time.Duration
}

func rulesFor(interval time.Duration) rules {
	return rules{
		maxFreshWindow: interval + longestHousekeeping,
		maxWindow:      max(5*time.Minute, 5*interval),
	}
}

// standing is what a container's samples in one body amount to.
type standing uint8

const (
	// unsampled: it runs, but there is no rate or no memory figure.
	unsampled standing = iota
	// notRunning: no process runs in it, so it does not count.
	notRunning
	// sampled: there is a rate and a memory figure.
	sampled
)

// settle applies the rules to the samples of the body that was read last.
//
// Zero is how a kubelet says that it has no figure: the stats provider fills a
// missing CPU counter or working set with it, and no process runs without
// having used some of either.
func (c *container) settle(r rules, t *tally) standing {
	const both = gotCPU | gotMemory
	if c.got&both != both {
		return unsampled
	}
	if c.cpu == 0 {
		if c.memory == 0 {
			return notRunning
		}
		return unsampled
	}
	if c.memory == 0 {
		return c.settleWithoutMemory(r, t)
	}
	c.idle = false
	c.advance(r, t)
	if !c.rate.known() {
		return unsampled
	}
	return sampled
}

// settleWithoutMemory tells a container that has ended, and whose cgroup is
// still there, from one whose memory could not be read: the counter of the
// latter goes on.
func (c *container) settleWithoutMemory(r rules, t *tally) standing {
	if c.base.known() && c.cpuTime > c.base.time {
		c.idle = c.cpu == c.base.cpu
	}
	c.advance(r, t)
	if c.idle {
		return notRunning
	}
	return unsampled
}

// advance takes the CPU sample, and with it the rate since the last one.
func (c *container) advance(r rules, t *tally) {
	if c.start > c.cpuTime {
		// The sample is of an earlier run of the container.
		c.forget()
		return
	}
	elapsed := time.Duration(c.cpuTime-c.base.time) * time.Millisecond
	switch {
	case !c.base.known():
	case c.restarted():
	case elapsed == 0:
		// Not renewed: the last rate is still the newest.
		return
	case elapsed > 0 && elapsed < minWindow:
		// Too close: it will be part of the next window.
		return
	case elapsed < 0 || elapsed > r.maxWindow:
		// The clock was set back, or the last sample is too old.
	case c.cpu < c.base.cpu:
		// The counter was reset.
	default:
		c.measure(c.cpu-c.base.cpu, elapsed, t)
		c.rebase()
		return
	}
	c.rate = cpuRate{}
	age := time.Duration(c.cpuTime-c.start) * time.Millisecond
	if c.start != 0 && age >= minFreshWindow && age <= r.maxFreshWindow && !c.sameRun() {
		// Its counter was zero at its start.
		c.measure(c.cpu, age, t)
	}
	c.rebase()
}

// restarted says whether the container was started since the last sample.
func (c *container) restarted() bool {
	return c.start != 0 && c.base.start != 0 && c.start != c.base.start
}

// sameRun says whether a sample of this very run is known: then its counter did
// not rise from its start as it should have, and its start proves nothing.
func (c *container) sameRun() bool { return c.base.known() && !c.restarted() }

// measure sets the rate of `used` core-seconds in `window`.
func (c *container) measure(used float64, window time.Duration, t *tally) {
	cores := used / window.Seconds()
	if cores > maxCores {
		t.skip(skipImplausible, []byte(c.raw))
		c.rate = cpuRate{}
		return
	}
	c.rate = cpuRate{
		cpu:    uint64(math.Round(cores * 1e9)),
		window: window.Milliseconds(),
		time:   c.cpuTime,
	}
}

func (c *container) rebase() {
	start := c.start
	if start == 0 {
		// The series may be missing in one body.
		start = c.base.start
	}
	c.base = base{cpu: c.cpu, time: c.cpuTime, start: start}
}

func (c *container) forget() {
	c.base, c.rate = base{}, cpuRate{}
}
