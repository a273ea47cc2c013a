// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// busyNode returns the series of a node that uses one core.
func busyNode(at float64) *reported {
	return &reported{cpu: 1000 + at, at: at, memory: 5e9, swap: missing}
}

// on returns a body of a node that uses one core, with the containers of pod p.
func on(at float64, containers ...reported) answer {
	return answer{node: busyNode(at), pods: map[string][]reported{"p": containers}}
}

// publishOf parses a body, and returns the point of pod p that it yields, if any.
func publishOf(t *testing.T, state *nodeState, a answer, at float64) *published {
	t.Helper()
	_, pods, _ := scrapeText(t, state, a.text(), at, a.broken)
	if len(pods) == 0 {
		return nil
	}
	return short(pods[0].Point)
}

// Some runtimes report a start that moves while the container goes on.
func TestStartMovesWithoutRestart(t *testing.T) {
	starts := map[string]func(at float64) float64{
		"once": func(at float64) float64 {
			if at < 20 {
				return -2592000
			}
			return 10
		},
		"with each sample": func(at float64) float64 { return at - 20 },
	}
	for name, start := range starts {
		for _, interval := range []float64{5, 15, 30, 45, 60} {
			t.Run(fmt.Sprintf("%s, each %v s", name, interval), func(t *testing.T) {
				var state nodeState
				for i := range 5 {
					at := float64(i) * interval
					got := publishOf(t, &state, on(at, says("a", 12016.5+0.1*at, at).with(func(r *reported) { r.start = start(at) })), at)
					var want *published
					if i > 0 {
						want = &published{Time: at, Window: interval, Newest: at, Started: start(0), Usages: usages("a: 100000000n 1000B")}
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("at %v: point (-want +got):\n%s", at, diff)
					}
				}
			})
		}
	}
}

// TestStarts has the cells of the table of starts and counters in docs/concepts/resource-metrics.md.
func TestStarts(t *testing.T) {
	const old, gone = -3600.0, -1.0
	point := func(window, started float64, nanocores int) *published {
		return &published{Time: 30, Window: window, Newest: 30, Started: started, Usages: usages(fmt.Sprintf("a: %dn 1000B", nanocores))}
	}
	began := point(12, 18, 166666667)
	tests := map[string]struct {
		start float64
		// The counter rises from 100, stays or begins again; the last sample is of 15 s.
		up, equal, down *published
		// The container is new, and the node's last body is of 15 s, or there is none.
		isNew, first *published
	}{
		"unknown":                   {missing, point(15, old, 200000000), point(15, old, 0), nil, nil, nil},
		"same":                      {old, point(15, old, 200000000), point(15, old, 0), nil, nil, nil},
		"earlier":                   {old - 9, point(15, old, 200000000), point(15, old, 0), nil, nil, nil},
		"later, before the last":    {10, point(15, old, 200000000), point(15, old, 0), nil, nil, nil},
		"later, after the last":     {18, point(15, old, 200000000), point(15, old, 0), began, began, nil},
		"later, after the sample":   {31, point(15, old, 200000000), point(15, old, 0), nil, nil, nil},
		"later, less than 10 s ago": {21, point(15, old, 200000000), point(15, old, 0), nil, nil, nil},
	}
	for name, tt := range tests {
		for column, c := range map[string]struct {
			last, cpu float64
			want      *published
		}{
			"up": {100, 103, tt.up}, "equal": {100, 100, tt.equal}, "down": {100, 2, tt.down},
			"new": {gone, 2, tt.isNew}, "first": {missing, 2, tt.first},
		} {
			for _, broken := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, scrape between failed: %v", name, column, broken), func(t *testing.T) {
					var state nodeState
					switch c.last {
					case missing:
					case gone:
						publishOf(t, &state, on(15), 15)
					default:
						publishOf(t, &state, on(0, says("a", c.last, 0)), 0)
						publishOf(t, &state, on(15, says("a", c.last, 15)), 15)
					}
					now := on(30, says("a", c.cpu, 30).with(func(r *reported) { r.start = tt.start }))
					if broken {
						failed := on(25, says("a", 999, 25))
						failed.broken = true
						publishOf(t, &state, failed, 25)
					}
					if diff := cmp.Diff(c.want, publishOf(t, &state, now, 30)); diff != "" {
						t.Errorf("point (-want +got):\n%s", diff)
					}
					if column != "down" {
						return
					}
					// The first start of the new counter stays.
					want := &published{Time: 45, Window: 15, Newest: 45, Started: tt.start, Usages: usages("a: 200000000n 1000B")}
					if tt.start == missing {
						want.Started = 11
					}
					next := on(45, says("a", 5, 45).with(func(r *reported) { r.start = 11 }))
					if diff := cmp.Diff(want, publishOf(t, &state, next, 45)); diff != "" {
						t.Errorf("next point (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}

// A sidecar that restarts every few seconds does not withhold its pod for ever.
func TestSidecarKeepsRestarting(t *testing.T) {
	tests := map[string]struct {
		counters []float64
		age      float64
		// want has the sidecar's nanocores by scrape; -1 is no point.
		want []int
	}{
		// A counter that did not decrease is a difference.
		"as much each time":    {[]float64{0.4, 0.4, 0.4, 0.4}, 4, []int{-1, 0, 0, 0}},
		"less each time":       {[]float64{0.5, 0.4, 0.36, 0.32, 0.28}, 4, []int{-1, 100000000, 90000000, 80000000, 70000000}},
		"sampled at its start": {[]float64{0.05, 0.04, 0.03}, 0.1, []int{-1, 40000000, 30000000}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var state nodeState
			var got []int
			for i, cpu := range tt.counters {
				at := 15 * float64(i)
				sidecar := says("b", cpu, at).with(func(r *reported) { r.start = at - tt.age })
				p := publishOf(t, &state, on(at, says("a", 1000+0.2*at, at), sidecar), at)
				got = append(got, -1)
				if p == nil {
					continue
				}
				if p.Usages[0] != "a: 200000000n 1000B" {
					t.Errorf("scrape %d: %v", i, p.Usages)
				}
				if _, err := fmt.Sscanf(p.Usages[1], "b: %dn", &got[i]); err != nil {
					t.Error(err)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("sidecar (-want +got):\n%s", diff)
			}
		})
	}
}

// A container of a recreated pod may have a higher counter than the one before, also if the
// node's samples do not tell.
func TestStartAfterLastSampleIsBelieved(t *testing.T) {
	for lag, cores := range map[float64]float64{0: 1, 13: 0.05} {
		var state nodeState
		body := func(at float64, c reported) answer {
			a := on(at-lag, c)
			a.node.cpu = cores * (1000 + a.node.at)
			return a
		}
		publishOf(t, &state, body(0, says("a", 1, 0)), 0)
		publishOf(t, &state, body(15, says("a", 1, 15)), 15)
		got := publishOf(t, &state, body(30, says("a", 11.5, 30).with(func(r *reported) { r.start = 18 })), 30)
		want := &published{Time: 30, Window: 15, Newest: 30, Started: 18, Usages: usages("a: 700000000n 1000B")}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("node's samples %v s older: point (-want +got):\n%s", lag, diff)
		}
	}
}

// The rate from a start is at most what the node used in that time, as far as its samples tell.
func TestRateFromStartFitsNode(t *testing.T) {
	tests := map[string]struct {
		cpu, start float64
		// The node uses so many cores, and is sampled at -15, 0 and node.
		cores, node float64
		want        bool
	}{
		"less than the node":         {11.9, 3, 1, 15, true},
		"all of it":                  {15, 3, 1, 15, true},
		"more than the node":         {15.1, 3, 1, 15, false},
		"a year of CPU":              {12016, 3, 1, 15, false},
		"the node's sample is older": {11.9, 3, 1, 8, true},
		"the node's sample is older, more than possible": {121, 3, 1, 8, false},
		"the node's sample is of just after the start":   {11.5, 3, 0.1, 7, true},
		"the node's sample is of before the start":       {11.5, 3, 0.05, 2, true},
		"600 cores, sample of before the start":          {7200, 3, 0.05, 2, false},
		"the node's sample is not new":                   {11.5, 3, 0.05, 0, true},
		"a year of CPU, the node's sample is not new":    {12016, 3, 1, 0, false},
		"no CPU of the node is known":                    {11.5, 3, 0, 15, true},
		"a year of CPU, none of the node is known":       {12016, 3, 0, 15, false},
		"sampled at its start":                           {0.05, 14.999, 0, 15, true},
		"sampled at its start, more than possible":       {900, 14.997, 1, 14, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			body := func(at float64, containers ...reported) answer {
				a := on(at, containers...)
				a.node.cpu = tt.cores * (1000 + at)
				return a
			}
			var state nodeState
			publishOf(t, &state, body(-15), -15)
			publishOf(t, &state, body(0, says("a", 1e5, 0).with(func(r *reported) { r.start = -5 })), 0)
			last := body(tt.node, says("a", tt.cpu, 15).with(func(r *reported) { r.start = tt.start }))
			if got := publishOf(t, &state, last, 15); (got != nil) != tt.want {
				t.Errorf("point %+v, want one: %v", got, tt.want)
			}
		})
	}
}

// A pod that moved to another node is served from there, also if its start on the old
// node moves past that on the new one.
func TestPodOnTwoNodesWithMovingStart(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(epoch)
	store := samplestore.NewStore(clock, 90*time.Second)
	key := samplestore.Key{Namespace: "ns", Name: "p"}
	store.Pods.SetMeta(key, &samplestore.Meta{UID: "u"})
	states := map[string]*nodeState{"old": {}, "new": {}}
	for i := range 5 {
		at := 15 * float64(i)
		clock.SetTime(sec(at))
		for name, c := range map[string]reported{
			"old": says("a", 5000+at, at).with(func(r *reported) { r.start = at - 12 }),
			"new": says("a", 10+at, at).with(func(r *reported) { r.start = -0.5 }),
		} {
			w, state := new(workspace), states[name]
			stats := parseBody(t, state, strings.NewReader(on(at, c).text()), epoch.UnixMilli()+int64(at*1000), w)
			state.commit()
			_, pods := state.points(name, rateRulesFor(15*time.Second), w, &stats)
			store.Pods.Publish(pods)
		}
		if o := store.Pods.Get(key); i > 0 && (o == nil || o.Point.Node != "new") {
			t.Errorf("at %v: served is %+v", at, o)
		}
	}
}
