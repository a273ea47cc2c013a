// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package phase estimates when a kubelet refreshes its node sample, so that a
// scrape can follow a refresh closely instead of reading an old sample.
//
// The kubelet's eviction manager makes cAdvisor read the node, works, and waits for
// ten seconds. So the period is ten seconds plus the work: next to nothing on an
// idle node, seconds on a busy one, and different each time, so that the phase
// drifts. The tracker keeps the newest sample's time and the mean and deviation of
// the periods; the uncertainty of a prediction grows with each period ahead.
// Scraping late by d costs d of freshness; scraping early costs a whole period. So
// a scrape aims at a late quantile, and not at all if the uncertainty is too large.
//
// The other unknown is the delay from a sample's timestamp, by the kubelet's clock,
// until the sample can be read, by ours. It includes the difference of the clocks.
// A sample that is read at age a bounds it: the delay is at most a and, as the next
// sample was not there yet, more than a - period. These bounds form a bracket.
//
// TestTracker shows the effect on the age of samples.
package phase

import (
	"math"
	"time"
)

const (
	// defaultPeriod is assumed until two samples are known.
	defaultPeriod = 10 * time.Second
	// minPeriod and maxPeriod bound the periods that are tracked.
	minPeriod = 9500 * time.Millisecond
	maxPeriod = 16 * time.Second
	// averagedSteps is the number of steps over which mean and deviation are
	// averaged, exponentially: at an interval of 15 s, about four minutes.
	averagedSteps = 16
	// lateDeviations is the quantile to aim at, in mean absolute deviations: about
	// nine in ten, for a uniform distribution as for a normal one.
	lateDeviations = 1.6
	// longDeviations is the upper end of the periods, in the same unit.
	longDeviations = 2.5
	// A step confirms the period if it is off by less than jitter plus
	// outlierDeviations mean absolute deviations.
	jitter            = 500 * time.Millisecond
	outlierDeviations = 4
	// wideBracket is the width from which the middle of the bracket is tried.
	wideBracket = time.Second
	// narrowBracket is the width of the bracket after a contradiction.
	narrowBracket = 500 * time.Millisecond
	// bracketDrift widens the bracket with each scrape, so that a shorter delay is
	// noticed: at an interval of 15 s, by one early scrape in about 25 minutes.
	bracketDrift = 5 * time.Millisecond
	// syncedDelay is the delay that is tried first, since most clocks are synchronized.
	syncedDelay = 500 * time.Millisecond

	maxConfidence = 4
	minConfidence = 1
)

// Tracker estimates the phase of one kubelet. The zero value has no samples. It is
// not safe for concurrent use.
type Tracker struct {
	// sample is the time of the newest sample, by the kubelet's clock.
	sample time.Time
	// period is the mean of the newest steps from sample to sample, and deviation
	// the mean absolute deviation from it; steps counts them, up to averagedSteps.
	period, deviation time.Duration
	steps             int
	// confidence rises with each step that confirms the period, and falls with
	// each that does not.
	confidence int
	// low and high bracket the delay. low may be assumed; floor, which is at most
	// low, was observed.
	low, high, floor time.Duration
	// early counts consecutive scrapes that came too early.
	early int
	// expected is the earliest time expected of the next sample; zero if the next
	// scrape does not aim at a refresh. slack delays scrapes after early ones.
	expected time.Time
	slack    time.Duration
}

// Observe adds an observation: a scrape at time scraped, by our clock, returned the
// given sample time.
func (t *Tracker) Observe(scraped, sample time.Time) {
	step := sample.Sub(t.sample)
	if t.sample.IsZero() || step < 0 {
		// The first sample, or the kubelet's clock was set back.
		*t = Tracker{sample: sample, period: defaultPeriod, confidence: minConfidence + 1}
		t.resetDelay(scraped.Sub(sample))
		return
	}
	t.adjustSlack(sample)
	if step > 0 {
		t.updatePeriod(step)
		t.sample = sample
	}
	t.updateDelay(scraped.Sub(sample))
}

// adjustSlack raises the slack after an early scrape and lowers it slowly after
// others, so that about one scrape in nine is early whatever the distribution.
func (t *Tracker) adjustSlack(sample time.Time) {
	if sample.Before(t.expected) {
		t.slack = min(t.slack+t.deviation/2, t.period/2)
	} else {
		t.slack = max(t.slack-t.deviation/16, 0)
	}
}

// updatePeriod updates the period from the distance of two samples.
func (t *Tracker) updatePeriod(step time.Duration) {
	least := math.Ceil(float64(step) / float64(maxPeriod))
	most := math.Floor(float64(step) / float64(minPeriod))
	if least > most {
		t.confidence = max(t.confidence-2, 0)
		return
	}
	periods := min(max(math.Round(float64(step)/float64(t.period)), least), most)
	off := float64(step) - periods*float64(t.period)
	deviation := math.Abs(off) / math.Sqrt(periods)
	if deviation > float64(jitter)+outlierDeviations*float64(t.deviation) {
		// A clock was changed or the node was suspended: ignore the step unless
		// this repeats.
		if t.confidence = max(t.confidence-2, 0); t.confidence > 0 {
			return
		}
	} else {
		t.confidence = min(t.confidence+1, maxConfidence)
	}
	t.steps = min(t.steps+1, averagedSteps)
	// The default period counts as one step while there are few.
	weight := 1 / float64(min(t.steps+1, averagedSteps))
	t.period += time.Duration(off / periods * weight)
	t.deviation += time.Duration((deviation - float64(t.deviation)) * weight)
}

// margin returns how long after the expected refresh to scrape, a number of periods
// ahead. The deviations of periods add up as independent ones.
func (t *Tracker) margin(periods float64) time.Duration {
	return time.Duration(lateDeviations*float64(t.deviation)*math.Sqrt(periods)) + t.slack
}

// precise reports whether aiming at a refresh pays. Without aim, samples are half a
// period old on average, and aimed scrapes are sometimes early.
func (t *Tracker) precise(periods float64) bool { return t.margin(periods) <= t.period/3 }

// longPeriod returns a period that is hardly ever exceeded.
func (t *Tracker) longPeriod() time.Duration {
	return t.period + time.Duration(longDeviations*float64(t.deviation))
}

// resetDelay sets the bracket from a single age.
func (t *Tracker) resetDelay(age time.Duration) {
	t.low, t.high, t.floor, t.early = age-t.period, age, age-t.period, 0
	if t.low < 0 && syncedDelay < t.high {
		t.low, t.high = 0, syncedDelay
	}
}

// updateDelay updates the bracket from the age of a sample.
func (t *Tracker) updateDelay(age time.Duration) {
	period := t.longPeriod()
	if age > t.high+period+wideBracket {
		// The kubelet skipped a refresh, which says nothing about the delay unless
		// it repeats, as after a change of a clock.
		if t.confidence = max(t.confidence-1, 0); t.confidence == 0 {
			t.resetDelay(age)
		}
		return
	}
	low, high := max(t.low-bracketDrift, age-period), min(t.high, age)
	t.floor = max(t.floor-bracketDrift, age-period)
	switch gain := t.high - age; {
	case age-period >= t.high:
		// The sample was not there at a delay at which one was before. The
		// steps double to catch up with a changed clock.
		high = low + narrowBracket<<min(t.early, 4)
		t.early++
	case low >= high:
		// The sample was there earlier than the bracket allows.
		low = high - narrowBracket
		t.floor = min(t.floor, low)
	case gain > narrowBracket/2 && t.high-t.low < 2*wideBracket:
		// A scrape in the middle of a narrow bracket was not early: the delay may
		// be far below, so the next scrapes go further.
		low = max(low-2*gain, t.floor)
		fallthrough
	case age < period:
		t.early = 0
	}
	t.low, t.high = low, high
}

// Next returns when to scrape: after the first refresh at or after the slot, or at
// the slot if refreshes cannot be predicted. Each slot yields one scrape, so a node
// is never scraped more often than its interval says.
func (t *Tracker) Next(slot time.Time, interval time.Duration) time.Time {
	t.expected = time.Time{}
	if !t.Tracks(interval) {
		return slot
	}
	delay := t.high
	// The delay need not be known more precisely than the period.
	if t.high-t.low > wideBracket+t.longPeriod()-t.period {
		delay = t.low + (t.high-t.low)/2
	}
	first := t.sample.Add(delay)
	// One less, since the margin may move an earlier refresh behind the slot.
	periods := math.Max(1, math.Ceil(float64(slot.Sub(first))/float64(t.period))-1)
	for t.precise(periods) {
		due := first.Add(time.Duration(periods*float64(t.period)) + t.margin(periods))
		switch {
		case due.Sub(slot) > t.period+t.margin(periods):
			return slot
		case !due.Before(slot):
			t.expected = t.sample.Add(time.Duration((periods - 0.5) * float64(t.period)))
			return due
		}
		periods++
	}
	return slot
}

// Tracks reports whether the phase is known and useful for an interval. An interval
// slightly shorter than the period is stretched to it; a much shorter one reads
// each sample anyway.
func (t *Tracker) Tracks(interval time.Duration) bool {
	if t.sample.IsZero() || t.confidence < minConfidence || interval < t.period*4/5 {
		return false
	}
	return t.precise(math.Ceil(float64(interval) / float64(t.period)))
}
