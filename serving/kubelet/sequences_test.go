// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// simulated is a container of a simulated node. Its counter is true, its start may not be.
type simulated struct {
	cpu, start float64
	running    bool
	// reports is how the kubelet reports the start.
	reports int
}

func (c *simulated) reported(r *rand.Rand, name string, at float64) reported {
	start := c.start
	switch c.reports {
	case 1:
		start = missing
	case 2:
		start = at - 20 // moves with each sample
	case 3:
		start = at - 100*r.Float64()
	}
	return says(name, c.cpu, at).with(func(r *reported) { r.start = start })
}

// sequence parses random bodies of a node, some of which fail or lack a container, and
// checks what they yield.
func sequence(t *testing.T, r *rand.Rand) {
	t.Helper()
	var state, constant nodeState
	steady := r.IntN(2) == 0 // no container starts
	var containers [3]simulated
	for i := range containers {
		containers[i] = simulated{cpu: 10000 * r.Float64(), start: -1e6 * r.Float64(), running: r.IntN(2) == 0, reports: r.IntN(4)}
	}
	type counter struct{ at, cpu float64 }
	node := []counter{{}}
	at, cpu := 0.0, 100000.0
	for range 12 {
		step := []float64{1, 5, 15, 15, 15, 30, 45, 60, 400}[r.IntN(9)]
		last := at
		at += step
		var now, same []reported
		for i := range containers {
			c := &containers[i]
			switch event := r.IntN(6); {
			case steady:
			case event == 0: // it ends, or starts
				c.running = !c.running
				fallthrough
			case event == 1: // it restarts
				c.cpu, c.start = 0, last+step*r.Float64()
			}
			if !c.running {
				continue
			}
			used := 2 * r.Float64() * (at - max(last, c.start))
			c.cpu, cpu = c.cpu+used, cpu+used
			if steady || r.IntN(10) > 0 {
				now = append(now, c.reported(r, fmt.Sprint("c", i), at))
				same = append(same, says(fmt.Sprint("c", i), c.cpu, at))
			}
		}
		body := answer{node: &reported{cpu: cpu, at: at, memory: 5e9, swap: missing}, pods: map[string][]reported{"p": now}, broken: r.IntN(8) == 0}
		got := publishOf(t, &state, body, at)
		if !body.broken {
			node = append(node, counter{at, cpu})
		}
		if body.pods["p"] = same; steady {
			want := publishOf(t, &constant, body, at)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(published{}, "Started")); diff != "" {
				t.Errorf("at %v: other points than with starts that do not move (-want +got):\n%s", at, diff)
			}
		}
		if got == nil {
			continue
		}
		if got.Window < 1 || got.Time != at {
			t.Errorf("at %v: %+v", at, got)
		}
		// All are sampled with the node, and no container used more.
		for name, c := range containersOf(&state) {
			begin := node[0]
			for _, n := range node {
				if n.at <= float64(c.rate.time-c.rate.window-epoch.UnixMilli())/1000+0.001 {
					begin = n
				}
			}
			if used := float64(c.rate.cpu) / 1e9 * float64(c.rate.window) / 1000; used > cpu-begin.cpu+0.001 {
				t.Errorf("at %v: %s used %v s in %v ms, the node %v s", at, name, used, c.rate.window, cpu-begin.cpu)
			}
		}
	}
}

func TestSequences(t *testing.T) {
	for seed := range uint64(200) {
		sequence(t, rand.New(rand.NewPCG(seed, 0)))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzSequences is TestSequences with fuzzed seeds.
func FuzzSequences(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, first, second uint64) { sequence(t, rand.New(rand.NewPCG(first, second))) })
}
