// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
	"testing"
	"time"
)

func TestNodeSamplesKeepABeat(t *testing.T) {
	f, _ := newFleet(t, Options{Nodes: 200, PodsPerNode: 1})
	phases := map[time.Duration]int{}
	quarters := [4]int{}
	for _, n := range f.Nodes() {
		phases[n.cadence.phase]++
		quarters[n.cadence.phase*4/(10*time.Second)]++
		for offset := time.Duration(0); offset < 25*time.Second; offset += 333 * time.Millisecond {
			at := epoch.Add(offset)
			sampled := n.cadence.at(at)
			if age := at.Sub(sampled); age < 0 || age >= 10*time.Second {
				t.Fatalf("%s: the sample at %v is %v old", n.Name, offset, age)
			}
			if got := time.Duration(sampled.UnixNano() % int64(10*time.Second)); got != n.cadence.phase {
				t.Fatalf("%s: sampled at phase %v, want %v", n.Name, got, n.cadence.phase)
			}
		}
	}
	if len(phases) < 190 {
		t.Errorf("200 nodes have only %d phases", len(phases))
	}
	for i, count := range quarters {
		if count < 25 {
			t.Errorf("only %d of 200 nodes have their phase in quarter %d of the period", count, i+1)
		}
	}
}

func TestContainerSamplesAreJittered(t *testing.T) {
	for name, period := range map[string]time.Duration{"a kubelet's": 10 * time.Second, "a slow one": time.Minute} {
		t.Run(name, func(t *testing.T) {
			c := newJitteredCadence(42, epoch, period)
			first, ok := c.at(epoch.Add(time.Second))
			if !ok || first.Sub(epoch) < 100*time.Millisecond {
				t.Fatalf("first sample at %v (%v), want it within the first second", first.Sub(epoch), ok)
			}
			if _, ok := c.at(epoch); ok {
				t.Error("a sample before the container ran")
			}
			shortest, longest := time.Duration(math.MaxInt64), time.Duration(0)
			last, count := first, 0
			for at := first; count < 500; at = at.Add(period / 50) {
				sampled, ok := c.at(at)
				if !ok || sampled.After(at) {
					t.Fatalf("at %v: sample %v, %v", at, sampled, ok)
				}
				if gap := sampled.Sub(last); gap != 0 {
					shortest, longest = min(shortest, gap), max(longest, gap)
					last = sampled
					count++
				}
			}
			if shortest < period || longest > 2*period {
				t.Errorf("gaps from %v to %v, want them within %v and %v", shortest, longest, period, 2*period)
			}
			if longest-shortest < period/2 {
				t.Errorf("gaps from %v to %v: hardly any jitter", shortest, longest)
			}
			if mean := last.Sub(first) / 500; mean < period*7/5 || mean > period*8/5 {
				t.Errorf("mean gap %v, want about %v", mean, period*3/2)
			}
		})
	}
}

// A container's samples do not depend on when one looks.
func TestSampleTimeIsAFunctionOfTime(t *testing.T) {
	c := newJitteredCadence(9, epoch, 10*time.Second)
	for offset := 2 * time.Second; offset < 5*time.Minute; offset += 777 * time.Millisecond {
		sampled, _ := c.at(epoch.Add(offset))
		if again, _ := c.at(sampled); !again.Equal(sampled) {
			t.Errorf("at the very time of sample %v the newest is %v", sampled, again)
		}
		if before, _ := c.at(sampled.Add(-time.Millisecond)); !before.Before(sampled) {
			t.Errorf("just before sample %v the newest is %v", sampled, before)
		}
	}
}

func TestLoadIsPositiveAndItsOwnIntegral(t *testing.T) {
	for seed := range uint64(50) {
		l := newLoad(seed, 0.001, 0.5)
		for age := time.Duration(0); age < 2*time.Hour; age += 7 * time.Second {
			if cores := l.cores(age); cores <= 0 || cores > 1 {
				t.Fatalf("seed %d: %v cores at %v", seed, cores, age)
			}
			slope := float64(l.nanoseconds(age+time.Second)-l.nanoseconds(age)) / 1e9
			if middle := l.cores(age + time.Second/2); math.Abs(slope-middle) > 0.01*middle {
				t.Fatalf("seed %d at %v: slope %v, load %v", seed, age, slope, middle)
			}
		}
		if got := l.nanoseconds(-time.Second); got != 0 {
			t.Errorf("seed %d: %d ns before birth", seed, got)
		}
	}
}

func TestMemoryWanders(t *testing.T) {
	w := newWalk(1, 100<<20, 100<<20)
	lowest, highest := uint64(math.MaxUint64), uint64(0)
	last := w.bytes(epoch)
	for at := epoch; at.Before(epoch.Add(3 * time.Hour)); at = at.Add(time.Second) {
		now := w.bytes(at)
		if now%page != 0 {
			t.Fatalf("%d bytes are no whole pages", now)
		}
		if step := math.Abs(float64(now) - float64(last)); step > 2<<20 {
			t.Fatalf("a step of %v bytes in a second", step)
		}
		lowest, highest, last = min(lowest, now), max(highest, now), now
	}
	if lowest < 69<<20 || highest > 131<<20 || highest-lowest < 30<<20 {
		t.Errorf("between %d and %d bytes, want most of 70 to 130 MiB", lowest, highest)
	}
}
