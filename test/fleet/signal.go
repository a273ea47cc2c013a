// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
	"time"
)

// digest hashes the parts (FNV-1a, then a finalizer that spreads the bits), so
// that every figure of the fleet follows from the seed and a name.
func digest(seed uint64, parts ...string) uint64 {
	h := seed ^ 0xcbf29ce484222325
	for _, part := range parts {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * 0x100000001b3
		}
		h = (h ^ 0xff) * 0x100000001b3 // "ab","c" is not "a","bc"
	}
	return mix(h)
}

// mix is the finalizer of SplitMix64: neighbouring inputs, unrelated outputs.
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// fraction maps a hash to [0, 1).
func fraction(h uint64) float64 { return float64(h>>11) / (1 << 53) }

// between maps a hash to [low, high), evenly on a logarithmic scale: most
// containers are small and a few are large.
func between(h uint64, low, high float64) float64 {
	return low * math.Pow(high/low, fraction(h))
}

// load is a CPU load in cores that swings with two periods around its mean. It
// is always positive, and its integral has a closed form: the counter at any
// time costs two cosines, whatever the container's age.
type load struct {
	mean   float64
	swings [2]swing
}

type swing struct {
	share     float64 // amplitude, as a share of the mean
	frequency float64 // radians a second
	phase     float64
}

func newLoad(seed uint64, low, high float64) load {
	l := load{mean: between(digest(seed, "mean"), low, high)}
	// The shares add up to at most 0.9, so that the load never gets to zero.
	for i, shape := range []struct {
		name           string
		share          float64
		shortest, most float64 // period in seconds
	}{{"slow", 0.6, 300, 3600}, {"fast", 0.3, 20, 120}} {
		l.swings[i] = swing{
			share:     shape.share * fraction(digest(seed, shape.name, "share")),
			frequency: 2 * math.Pi / between(digest(seed, shape.name, "period"), shape.shortest, shape.most),
			phase:     2 * math.Pi * fraction(digest(seed, shape.name, "phase")),
		}
	}
	return l
}

// cores is the load at that age.
func (l *load) cores(age time.Duration) float64 {
	factor := 1.0
	for _, s := range l.swings {
		factor += s.share * math.Sin(s.frequency*age.Seconds()+s.phase)
	}
	return l.mean * factor
}

// nanoseconds of CPU used up to that age: the integral of cores, 0 before birth.
func (l *load) nanoseconds(age time.Duration) uint64 {
	if age <= 0 {
		return 0
	}
	seconds := age.Seconds()
	for _, s := range l.swings {
		seconds += s.share / s.frequency * (math.Cos(s.phase) - math.Cos(s.frequency*age.Seconds()+s.phase))
	}
	return uint64(max(0, l.mean*seconds) * 1e9)
}

const page = 4096

// walk is a working set that wanders between 0.7 and 1.3 of its mean: straight
// lines between random levels, one a minute, in whole pages.
type walk struct {
	seed uint64
	mean float64
}

const walkStep = time.Minute

func newWalk(seed uint64, low, high float64) walk {
	return walk{seed: seed, mean: between(digest(seed, "size"), low, high)}
}

func (w *walk) bytes(t time.Time) uint64 {
	since := t.UnixNano()
	step, within := since/int64(walkStep), float64(since%int64(walkStep))/float64(walkStep)
	from, to := w.level(step), w.level(step+1)
	return uint64(w.mean*(from+(to-from)*within)) / page * page
}

func (w *walk) level(step int64) float64 {
	return 0.7 + 0.6*fraction(mix(w.seed+uint64(step)*0x9e3779b97f4a7c15))
}
