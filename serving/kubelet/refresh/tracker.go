// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package refresh estimates when a kubelet refreshes its node sample, so that a
// scrape can follow a refresh closely instead of reading an old sample.
//
// The kubelet's eviction manager makes cAdvisor read the node, works, and waits for
// ten seconds. So the period is ten seconds plus the work: next to nothing on an
// idle node, seconds on a busy one, and different each time. A scrape at a random
// time reads a sample that is half a period old on average. A scrape that follows
// the refresh by d reads one of age d, but one that comes before the refresh reads
// one that is a whole period older. So the scrape aims at a late quantile of the
// next refresh, which needs two estimates:
//
//   - The timestamp of a coming sample, by the kubelet's clock. The distances of
//     samples are whole periods, so their exponentially weighted mean and mean
//     absolute deviation are those of a period. The sample n periods ahead is n
//     means later; if the periods are independent, its deviation is sqrt(n) times
//     that of one.
//   - The delay: the time from a sample's timestamp, by the kubelet's clock, until
//     the sample can be read, by ours. It contains the difference of the clocks,
//     and need not be positive. A sample that was read at some age shows that the
//     delay is at most that age. The next sample was not there yet, so the delay is
//     also more than the age minus a long period. The bounds of all scrapes are a
//     bracket, and scrapes aim at its upper end, the least age seen. On a busy node
//     the periods vary, so the least age approaches the delay by itself. On an idle
//     node each scrape would repeat the age of the first; so while the bracket is
//     wide, scrapes aim at its middle, and each halves it.
//
// The lower bound sinks with the time, since clocks drift apart. If the bounds
// contradict each other, a clock was changed, a refresh was skipped or a period was
// unusually long: the newest scrape is right, and the bracket is as wide as the
// contradiction. In particular a scrape that came too early raises the aim, and
// a later one lowers it again.
//
// The samples of containers have no such period: cAdvisor draws each wait from 10 to 20 s. Their
// ages are least if scrapes are at equal distances. So where an interval is no whole number of
// periods, scrapes are at multiples of half a period, and not each of them follows a refresh.
//
// TestTracker simulates kubelets, and compares the ages of samples with those of
// scrapes at equal distances.
package refresh

import (
	"math"
	"time"
)

const (
	// defaultPeriod, in seconds, is assumed until two samples are known.
	defaultPeriod = 10.0
	// minWeight is the least weight of a new step in mean and deviation: at an
	// interval of 15 s they follow a change of the load in about four minutes. A
	// mean of fewer steps is less exact, which costs about as much as it gains.
	minWeight = 1.0 / 16
	// lateDeviations is the quantile to aim at, in mean absolute deviations: nine in
	// ten, for a uniform distribution as for a normal one.
	lateDeviations = 1.6
	// latestAim is the largest margin, in periods, with which aiming pays. One in
	// ten scrapes is a period early, so the mean age is the margin and a tenth of a
	// period, against half a period without aim. This leaves a tenth of a period for
	// the cost of uneven distances.
	latestAim = 0.3
	// longestStretch is the longest period, in intervals, to which an interval is
	// stretched. It is small since the samples of containers have no such rhythm: they only
	// get older.
	longestStretch = 1.25
	// halfFrom and halfTo are the parts of a period that an interval may have beyond
	// whole periods for scrapes at half periods. With more, most scrapes are a little more
	// than an interval apart anyway. With less, a busy node's for instance, hardly any
	// scrape at half periods would find a fresh sample of the node.
	halfFrom, halfTo = 1.0 / 3, 0.75
	// resolution, in seconds, is the width of the bracket that is not halved. Scrapes
	// start on a grid of 250 ms, so half of it is the smallest step that matters.
	resolution = 0.5
	// clockDrift is how much two clocks that are not synchronized drift apart, in
	// seconds per second: each quartz is off by up to 50 ppm.
	clockDrift = 100e-6
)

// Tracker estimates when one kubelet refreshes its node sample. The zero value has no samples. It is
// not safe for concurrent use.
type Tracker struct {
	// sample is the time of the newest sample, by the kubelet's clock, and scraped
	// that of the newest scrape, by ours.
	sample, scraped time.Time
	// period is the mean period in seconds, and deviation the mean absolute deviation
	// from it. weight is that of the last step: of n steps 1/n, but at least minWeight.
	period, deviation, weight float64
	// low and high bracket the delay, in seconds.
	low, high float64
}

// Observe adds an observation: a scrape at time scraped, by our clock, returned the
// given sample time.
func (t *Tracker) Observe(scraped, sample time.Time) {
	first := t.sample.IsZero()
	age := scraped.Sub(sample).Seconds()
	step := sample.Sub(t.sample).Seconds()
	elapsed := scraped.Sub(t.scraped).Seconds()
	t.sample, t.scraped = sample, scraped
	if first {
		t.period, t.deviation, t.weight = defaultPeriod, 0, 1
	}
	if first || step < 0 { // the kubelet's clock was set back
		t.low, t.high = age-t.period, age
		return
	}
	if step > 0 {
		t.updatePeriod(step)
	}
	t.updateDelay(age, elapsed)
}

// updatePeriod updates the period from the distance of two samples.
func (t *Tracker) updatePeriod(step float64) {
	periods := max(1, math.Round(step/t.period))
	off := step - periods*t.period
	t.weight = max(t.weight/(1+t.weight), minWeight)
	t.period += off / periods * t.weight
	t.deviation += (math.Abs(off)/math.Sqrt(periods) - t.deviation) * t.weight
}

// updateDelay updates the bracket from the age of a sample, and the time since the
// last scrape.
func (t *Tracker) updateDelay(age, elapsed float64) {
	low := age - t.period - t.margin(1)
	t.low = max(t.low-clockDrift*max(elapsed, 0), low)
	t.high = min(t.high, age)
	gap := t.low - t.high
	if gap < 0 {
		return
	}
	width := min(max(gap, resolution), t.period)
	if t.low == low { // too early
		t.high = t.low + width
	} else {
		t.low = t.high - width
	}
}

// delay returns the delay to aim at. It need not be known more precisely than the
// period.
func (t *Tracker) delay() float64 {
	if t.bracketed() {
		return t.high
	}
	return (t.low + t.high) / 2
}

// bracketed reports whether the delay is known well enough.
func (t *Tracker) bracketed() bool { return t.high-t.low <= resolution+t.margin(1) }

// step returns the distance of the times at which to scrape: a period, or half of one if
// an interval is about one and a half periods. Then every other scrape follows a
// refresh, and scrapes are at equal distances: with one and two periods in turn the
// samples of containers get up to five seconds older. While the delay is not known, each
// scrape has to follow a refresh to learn it.
func (t *Tracker) step(interval time.Duration) float64 {
	_, part := math.Modf(interval.Seconds() / t.period)
	if t.bracketed() && part > halfFrom && part < halfTo {
		return t.period / 2
	}
	return t.period
}

// margin returns how long after its mean time to expect a refresh, a number of
// periods ahead.
func (t *Tracker) margin(periods float64) float64 {
	return lateDeviations * t.deviation * math.Sqrt(periods)
}

// precise reports whether aiming at a refresh pays, a number of periods ahead.
func (t *Tracker) precise(periods float64) bool { return t.margin(periods) <= latestAim*t.period }

// Next returns when to scrape: after the first refresh at or after the slot, or half a
// period later if that keeps distances equal, or at the slot if refreshes cannot be
// predicted. Each slot yields one scrape, so a node is never scraped more often than its
// interval says.
func (t *Tracker) Next(slot time.Time, interval time.Duration) time.Time {
	if !t.Tracks(interval) {
		return slot
	}
	ahead := slot.Sub(t.sample).Seconds() - t.delay()
	step := t.step(interval)
	aim := func(periods float64) float64 { return periods*t.period + t.margin(periods) }
	// The last step before the slot, if the margin moves it behind the slot, or the
	// next one.
	steps := max(1, math.Ceil(ahead/step)-1)
	if aim(steps*step/t.period) < ahead {
		steps++
	}
	periods := steps * step / t.period
	wait := aim(periods) - ahead
	if !t.precise(periods) || wait > aim(1) {
		return slot
	}
	return slot.Add(time.Duration(max(wait, 0) * float64(time.Second)))
}

// Tracks reports whether the refreshes are known, and useful for an interval. An interval
// slightly shorter than the period is stretched to it; a much shorter one reads
// each sample anyway.
func (t *Tracker) Tracks(interval time.Duration) bool {
	seconds := interval.Seconds()
	return !t.sample.IsZero() && t.period <= longestStretch*seconds && t.precise(math.Ceil(seconds/t.period))
}
