// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"math"
	"time"
)

// A kubelet renews its node sample on a beat of its own, about every ten
// seconds (its eviction manager asks cAdvisor for fresh figures that often), and
// whoever asks between two beats gets an old sample. A rhythm learns the beat
// from the samples' timestamps, so that a scrape comes just after one.
//
// What is unknown is the delay: from a sample's timestamp, by the kubelet's
// clock, to the moment when it can be had, by ours. It includes the difference
// of the clocks. Each scrape bounds it: a sample seen at age a says that the
// delay is at most a, and, as the next one was not there yet, more than
// a - period. The bounds of all scrapes are kept as a bracket.
//
// See TestRhythm for what it does to the samples' ages.
const (
	// beat is the period that is assumed until two samples tell it.
	beat = 10 * time.Second
	// beatRange is how far from beat a period may be. Samples at other
	// distances are not followed.
	beatRange = time.Second
	// beatJitter is how far a beat may be off for its sample to confirm the period.
	beatJitter = 500 * time.Millisecond
	// bracketWide is the width from which the middle of the bracket is tried.
	bracketWide = time.Second
	// bracketSettled is the width of the bracket after a contradiction.
	bracketSettled = 500 * time.Millisecond
	// bracketDrift opens the bracket with each scrape, so that a delay that
	// became shorter is noticed: at 15 s, by one early try in about 25 minutes.
	bracketDrift = 5 * time.Millisecond
	// synced is the delay that is tried first: clocks are mostly synchronised.
	synced = 500 * time.Millisecond

	maxTrust = 4
	minTrust = 1
)

// rhythm is the beat of one kubelet. The zero value knows nothing.
type rhythm struct {
	// sample is the newest one, by the kubelet's clock; zero before the first.
	sample time.Time
	period time.Duration
	// trust grows with each sample that came on the beat, and falls with each
	// that did not.
	trust int
	// low and high are the bracket of the delay. low may be an assumption; floor,
	// the same or less, is what was seen.
	low, high, floor time.Duration
	// early counts the tries in a row that came too early.
	early int
}

// observe takes in that the newest sample was `sample` when the kubelet was
// asked at `asked`, by our clock.
func (r *rhythm) observe(asked, sample time.Time) {
	step := sample.Sub(r.sample)
	if r.sample.IsZero() || step < 0 {
		// Nothing known, or the kubelet's clock was set back.
		*r = rhythm{period: beat, trust: minTrust + 1}
		r.sample = sample
		r.learn(asked.Sub(sample))
		return
	}
	if step > 0 {
		r.measure(step)
		r.sample = sample
	}
	r.narrow(asked.Sub(sample))
}

// measure compares the distance of two samples with the period.
func (r *rhythm) measure(step time.Duration) {
	beats := math.Max(1, math.Round(float64(step)/float64(r.period)))
	off := step - time.Duration(beats*float64(r.period))
	if off.Abs() <= beatJitter {
		r.trust = min(r.trust+1, maxTrust)
	} else {
		r.trust = max(r.trust-2, 0)
	}
	period := r.period + time.Duration(float64(off)/beats/2)
	if (period - beat).Abs() <= beatRange {
		r.period = period
	}
}

// learn starts the bracket anew from one age.
func (r *rhythm) learn(age time.Duration) {
	r.low, r.high, r.floor, r.early = age-r.period, age, age-r.period, 0
	if r.low < 0 && synced < r.high {
		r.low, r.high = 0, synced
	}
}

// narrow takes one more age into the bracket.
func (r *rhythm) narrow(age time.Duration) {
	if age > r.high+r.period+bracketWide {
		// The kubelet left out a beat: that tells nothing about the delay, unless
		// it goes on, as after a change of a clock.
		if r.trust = max(r.trust-1, 0); r.trust == 0 {
			r.learn(age)
		}
		return
	}
	low, high := max(r.low-bracketDrift, age-r.period), min(r.high, age)
	r.floor = max(r.floor-bracketDrift, age-r.period)
	switch gain := r.high - age; {
	case age-r.period >= r.high:
		// It was not there although it had been at this delay before. The
		// steps double, to get far when a clock was changed.
		high = low + bracketSettled<<min(r.early, 4)
		r.early++
	case low >= high:
		// It was there earlier than it was thought to be possible.
		low = high - bracketSettled
		r.floor = min(r.floor, low)
	case gain > bracketSettled/2 && r.high-r.low < 2*bracketWide:
		// A try in the middle of a narrow bracket was late enough: the delay may
		// be far below it, so the next tries go further.
		low = max(low-2*gain, r.floor)
		fallthrough
	case age < r.period:
		r.early = 0
	}
	r.low, r.high = low, high
}

// next returns when to ask: the first beat at or after the slot, so that over
// time a node is asked as often as its slots come, and never more often.
func (r *rhythm) next(slot time.Time, interval time.Duration) time.Time {
	if !r.follows(interval) {
		return slot
	}
	aim := r.high
	if r.high-r.low > bracketWide {
		aim = r.low + (r.high-r.low)/2
	}
	base := r.sample.Add(aim)
	beats := math.Max(1, math.Ceil(float64(slot.Sub(base))/float64(r.period)))
	due := base.Add(time.Duration(beats * float64(r.period)))
	if due.Before(slot) || due.Sub(slot) > r.period {
		return slot
	}
	return due
}

// follows says whether the beat is known and worth following. With an interval
// shorter than the period, each beat is met anyway.
func (r *rhythm) follows(interval time.Duration) bool {
	return r.trust >= minTrust && interval >= r.period && !r.sample.IsZero()
}

// slotAfter returns the first instant after t of a grid that has one every
// interval, offset by phase, which is in [0, 1).
func slotAfter(t time.Time, interval time.Duration, phase float64) time.Time {
	offset := time.Duration(phase * float64(interval))
	since := time.Duration(t.UnixNano()) - offset
	return time.Unix(0, int64(since-since%interval+interval+offset))
}
