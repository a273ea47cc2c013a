// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"math"
	"time"
)

// A kubelet renews its node sample on a beat of its own, and whoever asks between
// two beats gets an old sample. A rhythm learns the beat from the samples'
// timestamps, so that a scrape comes just after one.
//
// The beat is that of the kubelet's eviction manager, which has cAdvisor read the
// node anew, works, and waits for ten seconds. So a period is ten seconds and the
// work: next to nothing on an idle node, seconds on a busy one, different each
// time, so that the phase wanders. Known are a sample's own time, and of the
// periods the mean and the spread, with which the uncertainty grows from beat to
// beat. To be a little late costs that little; to be early costs a whole period.
// So a scrape aims at a late quantile, and at no beat that is too uncertain.
//
// What is unknown besides is the delay: from a sample's timestamp, by the kubelet's
// clock, to the moment when it can be had, by ours. It includes the difference
// of the clocks. Each scrape bounds it: a sample seen at age a says that the
// delay is at most a, and, as the next one was not there yet, more than
// a - period. The bounds of all scrapes are kept as a bracket.
//
// See TestRhythm for what it does to the samples' ages.
const (
	// beat is the period that is assumed until two samples tell it.
	beat = 10 * time.Second
	// shortest and longest are the periods that are followed.
	shortest = 9500 * time.Millisecond
	longest  = 16 * time.Second
	// memory is the number of steps over which mean and spread are averaged,
	// exponentially: at 15 s, about four minutes.
	memory = 16
	// lateness is the quantile that is aimed at, in mean absolute deviations: about
	// nine in ten, for a uniform distribution as for a normal one.
	lateness = 1.6
	// reach is the wide end of the periods, in the same unit.
	reach = 2.5
	// beatJitter and so many mean absolute deviations are how far a step may be off
	// to confirm the period.
	beatJitter = 500 * time.Millisecond
	outlier    = 4
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
	// period is the mean, and spread the mean absolute deviation from it, of the
	// newest steps from sample to sample; steps counts them, up to memory.
	period, spread time.Duration
	steps          int
	// trust grows with each step that confirms the period, and falls with each
	// that does not.
	trust int
	// low and high are the bracket of the delay. low may be an assumption; floor,
	// the same or less, is what was seen.
	low, high, floor time.Duration
	// early counts the tries in a row that came too early.
	early int
	// aim is what the next sample's time is expected to be at least; zero where no
	// beat is aimed at. slack is what the aims are later since some were missed.
	aim   time.Time
	slack time.Duration
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
	r.judge(sample)
	if step > 0 {
		r.measure(step)
		r.sample = sample
	}
	r.narrow(asked.Sub(sample))
}

// judge makes the aims later after a miss and bit by bit earlier after hits, so
// that in the long run one in about nine misses, also where the deviations are not
// as late takes them to be.
func (r *rhythm) judge(sample time.Time) {
	if sample.Before(r.aim) {
		r.slack = min(r.slack+r.spread/2, r.period/2)
	} else {
		r.slack = max(r.slack-r.spread/16, 0)
	}
}

// measure learns from the distance of two samples.
func (r *rhythm) measure(step time.Duration) {
	least := math.Ceil(float64(step) / float64(longest))
	most := math.Floor(float64(step) / float64(shortest))
	if least > most {
		r.trust = max(r.trust-2, 0)
		return
	}
	beats := min(max(math.Round(float64(step)/float64(r.period)), least), most)
	off := float64(step) - beats*float64(r.period)
	deviation := math.Abs(off) / math.Sqrt(beats)
	if deviation > float64(beatJitter)+outlier*float64(r.spread) {
		// A clock was changed, or the node was suspended: nothing to learn from,
		// unless it goes on.
		if r.trust = max(r.trust-2, 0); r.trust > 0 {
			return
		}
	} else {
		r.trust = min(r.trust+1, maxTrust)
	}
	r.steps = min(r.steps+1, memory)
	// The assumption counts as one step, for as long as there are few.
	weight := 1 / float64(min(r.steps+1, memory))
	r.period += time.Duration(off / beats * weight)
	r.spread += time.Duration((deviation - float64(r.spread)) * weight)
}

// late is how long after its expected time a beat is asked for, so many beats
// after the known one. The deviations of the periods add up as independent ones.
func (r *rhythm) late(beats float64) time.Duration {
	return time.Duration(lateness*float64(r.spread)*math.Sqrt(beats)) + r.slack
}

// certain says whether it pays to aim at the beat: blind asking finds samples at
// half a period on average, and some tries will come too early.
func (r *rhythm) certain(beats float64) bool { return r.late(beats) <= r.period/3 }

// longPeriod is a period that is hardly ever exceeded.
func (r *rhythm) longPeriod() time.Duration {
	return r.period + time.Duration(reach*float64(r.spread))
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
	period := r.longPeriod()
	if age > r.high+period+bracketWide {
		// The kubelet left out a beat: that tells nothing about the delay, unless
		// it goes on, as after a change of a clock.
		if r.trust = max(r.trust-1, 0); r.trust == 0 {
			r.learn(age)
		}
		return
	}
	low, high := max(r.low-bracketDrift, age-period), min(r.high, age)
	r.floor = max(r.floor-bracketDrift, age-period)
	switch gain := r.high - age; {
	case age-period >= r.high:
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
	case age < period:
		r.early = 0
	}
	r.low, r.high = low, high
}

// next returns when to ask: the first beat at or after the slot, so that over
// time a node is asked as often as its slots come, and never more often.
func (r *rhythm) next(slot time.Time, interval time.Duration) time.Time {
	r.aim = time.Time{}
	if !r.follows(interval) {
		return slot
	}
	delay := r.high
	// There is no sense in knowing the delay better than the beat.
	if r.high-r.low > bracketWide+r.longPeriod()-r.period {
		delay = r.low + (r.high-r.low)/2
	}
	base := r.sample.Add(delay)
	// One less, as the lateness may bring it behind the slot all the same.
	beats := math.Max(1, math.Ceil(float64(slot.Sub(base))/float64(r.period))-1)
	for r.certain(beats) {
		due := base.Add(time.Duration(beats*float64(r.period)) + r.late(beats))
		switch {
		case due.Sub(slot) > r.period+r.late(beats):
			return slot
		case !due.Before(slot):
			r.aim = r.sample.Add(time.Duration((beats - 0.5) * float64(r.period)))
			return due
		}
		beats++
	}
	return slot
}

// follows says whether the beat is known and worth following. An interval that is
// a little shorter than the period is stretched to it; with a much shorter one,
// each beat is met anyway.
func (r *rhythm) follows(interval time.Duration) bool {
	if r.sample.IsZero() || r.trust < minTrust || interval < r.period*4/5 {
		return false
	}
	return r.certain(math.Ceil(float64(interval) / float64(r.period)))
}

// slotAfter returns the first instant after t of a grid that has one every
// interval, offset by phase, which is in [0, 1).
func slotAfter(t time.Time, interval time.Duration, phase float64) time.Time {
	offset := time.Duration(phase * float64(interval))
	since := time.Duration(t.UnixNano()) - offset
	return time.Unix(0, int64(since-since%interval+interval+offset))
}
