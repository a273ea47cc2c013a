// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import "time"

// nodeCadence renews a sample every period, at a phase of the node's own. A
// kubelet's root cgroup is the one whose samples keep a beat.
type nodeCadence struct {
	period, phase time.Duration
}

// at is the time of the newest sample at t.
func (c nodeCadence) at(t time.Time) time.Time {
	into := time.Duration(t.Add(-c.phase).UnixNano() % int64(c.period))
	return t.Add(-into).Truncate(time.Millisecond)
}

// jitteredCadence renews a sample after one to two periods, as cAdvisor does for
// every cgroup but the root (its jitter factor is 1.0). cAdvisor draws each gap,
// so that the n-th sample's time depends on all before; here the n-th lies within
// a quarter period of 1.5 n periods. Gaps have the same range and mean, and the
// newest sample at any time is found without a loop.
type jitteredCadence struct {
	first  time.Time
	period time.Duration
	seed   uint64
}

func newJitteredCadence(seed uint64, start time.Time, period time.Duration) jitteredCadence {
	// The first sample follows the start of the cgroup at once.
	splay := 100*time.Millisecond + time.Duration(fraction(digest(seed, "first"))*float64(900*time.Millisecond))
	return jitteredCadence{first: start.Add(splay).Truncate(time.Millisecond), period: period, seed: seed}
}

// at is the time of the newest sample at t, false before the first one.
func (c jitteredCadence) at(t time.Time) (time.Time, bool) {
	if t.Before(c.first) {
		return time.Time{}, false
	}
	step := c.period * 3 / 2
	n := int64(t.Sub(c.first) / step)
	for k := n + 1; k > 0; k-- {
		if sample := c.nth(k); !sample.After(t) {
			return sample, true
		}
	}
	return c.first, true
}

func (c jitteredCadence) nth(n int64) time.Time {
	shift := (fraction(mix(c.seed+uint64(n)*0x9e3779b97f4a7c15)) - 0.5) * float64(c.period) / 2
	return c.first.Add(time.Duration(n)*c.period*3/2 + time.Duration(shift)).Truncate(time.Millisecond)
}
