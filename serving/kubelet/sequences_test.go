// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// simulated is a container of a simulated node. Its counter is true, its start may not be.
type simulated struct {
	cpu, start float64
	running    bool
	// reports is how the kubelet reports the start; 0 is truly.
	reports int
	// seen is the sample in the last whole body with the container.
	seen counter
}

type counter struct{ at, cpu float64 }

// rate returns the CPU seconds and the window of the rate that the rules want after a whole
// body with the container; last is the time of the whole body before.
func (c *simulated) rate(last, at float64) (used, window float64) {
	const margin = 0.01
	age := at - c.start
	switch {
	case last > 0 && c.seen.at == last && c.cpu >= c.seen.cpu:
		if at-last <= 300 {
			return c.cpu - c.seen.cpu, at - last
		}
	case last > 0 && c.reports == 0 && c.start > last+margin && age > 10+margin && age < 45-margin:
		return c.cpu, age
	}
	return 0, 0
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
	node := []counter{{}}
	at, cpu := 0.0, 100000.0
	for range 12 {
		step := []float64{1, 5, 15, 15, 15, 30, 45, 60, 400}[r.IntN(9)]
		last := at
		at += step
		var now, same []reported
		var listed []int
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
				listed = append(listed, i)
			}
		}
		body := answer{node: &reported{cpu: cpu, at: at, memory: 5e9, swap: missing}, pods: map[string][]reported{"p": now}, broken: r.IntN(8) == 0}
		got := publishOf(t, &state, body, at)
		if !body.broken {
			for n, i := range listed { // ordered by name, as in the state
				c := &containers[i]
				used, window := c.rate(node[len(node)-1].at, at)
				rate := state.pods[samplestore.Key{Namespace: "ns", Name: "p"}].containers[n].rate
				if got := float64(rate.cpu) / 1e9 * float64(rate.window) / 1000; window > 0 && (math.Abs(float64(rate.window)/1000-window) > 0.002 || math.Abs(got-used) > 0.01) {
					t.Errorf("at %v: c%d: rate %+v, want %v s in %v s", at, i, rate, used, window)
				}
				c.seen = counter{at, c.cpu}
			}
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
		// All are sampled with the node, and no container used more. After 400 s the node has no rate.
		for name, c := range containersOf(&state) {
			begin := node[0]
			for _, n := range node {
				if n.at <= float64(c.rate.time-c.rate.window-epoch.UnixMilli())/1000+0.001 {
					begin = n
				}
			}
			limit := cpu - begin.cpu + 0.001
			if !state.node.rate.known() {
				limit = max(limit, 16*float64(c.rate.window)/1000)
			}
			if used := float64(c.rate.cpu) / 1e9 * float64(c.rate.window) / 1000; used > limit {
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
