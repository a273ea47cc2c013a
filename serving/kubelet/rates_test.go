// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// reported has the series of a container in a body, in seconds after epoch. A series
// with the value missing is left out.
type reported struct {
	name   string
	cpu    float64
	at     float64
	memory float64
	start  float64
	swap   float64
}

const missing = -1e9

// says returns the series of a container that started long ago.
func says(name string, cpu, at float64) reported {
	return reported{name: name, cpu: cpu, at: at, memory: 1000, start: -3600, swap: missing}
}

func (r reported) with(change func(*reported)) reported { change(&r); return r }

func (r reported) write(b *strings.Builder, pod string) {
	labels := fmt.Sprintf(`{container="%s",namespace="ns",pod="%s"}`, r.name, pod)
	ms := int64(math.Round(float64(epoch.UnixMilli()) + r.at*1000))
	for _, series := range []struct {
		name  string
		value float64
		stamp string
	}{
		{"container_cpu_usage_seconds_total", r.cpu, fmt.Sprint(" ", ms)},
		{"container_memory_working_set_bytes", r.memory, fmt.Sprint(" ", ms)},
		{"container_start_time_seconds", r.start, ""},
		{"container_swap_usage_bytes", r.swap, fmt.Sprint(" ", ms)},
	} {
		if series.value == missing {
			continue
		}
		if strings.HasSuffix(series.name, "start_time_seconds") {
			series.value += float64(epoch.Unix())
		}
		fmt.Fprintf(b, "%s%s %v%s\n", series.name, labels, series.value, series.stamp)
	}
}

// answer is a body of a kubelet: the node's series and the containers by pod.
type answer struct {
	node *reported
	pods map[string][]reported
	// broken means that the body is incomplete.
	broken bool
}

func answers(containers ...reported) answer {
	return answer{pods: map[string][]reported{"p": containers}}
}

func (a answer) text() string {
	var b strings.Builder
	if a.node != nil {
		fmt.Fprintf(&b, "node_cpu_usage_seconds_total %v %d\n", a.node.cpu, int64(float64(epoch.UnixMilli())+a.node.at*1000))
		fmt.Fprintf(&b, "node_memory_working_set_bytes %v\n", a.node.memory)
		if a.node.swap != missing {
			fmt.Fprintf(&b, "node_swap_usage_bytes %v\n", a.node.swap)
		}
	}
	for name, containers := range a.pods {
		for _, c := range containers {
			c.write(&b, name)
		}
	}
	return b.String()
}

// scrapeText parses a body as a scrape at a time in seconds after epoch does.
func scrapeText(t *testing.T, state *nodeState, text string, at float64, broken bool) (nodes, pods []samplestore.Update, stats parseStats) {
	t.Helper()
	w := new(workspace)
	stats = parseBody(t, state, strings.NewReader(text), epoch.UnixMilli()+int64(at*1000), w)
	if broken {
		state.abort()
		return nil, nil, stats
	}
	state.commit()
	nodes, pods = state.points("n1", rateRulesFor(15*time.Second), w, &stats)
	return nodes, pods, stats
}

// sec returns the time s seconds after epoch.
func sec(s float64) time.Time { return epoch.Add(time.Duration(s * float64(time.Second))) }

// published is a point with times in seconds after epoch and usages as text.
type published struct {
	Time, Window, Newest, Started float64
	Usages                        []string
}

func short(p *samplestore.Point) *published {
	s := &published{
		Time:   p.Time.AsTime().Sub(epoch).Seconds(),
		Window: p.Window.Seconds(),
		Newest: p.Newest.AsTime().Sub(epoch).Seconds(),
	}
	if p.Started != 0 {
		s.Started = p.Started.AsTime().Sub(epoch).Seconds()
	}
	for _, u := range p.Usages {
		text := fmt.Sprintf("%s: %dn %dB", u.Name, u.CPU, u.Memory)
		if u.HasSwap {
			text += fmt.Sprintf(" %dB swap", u.Swap)
		}
		s.Usages = append(s.Usages, text)
	}
	return s
}

// scrapeStep is a scrape and the point of pod p that it should publish.
type scrapeStep struct {
	at     float64
	answer answer
	want   *published
}

func usages(lines ...string) []string { return lines }

// ran returns a point of containers that started long ago, all sampled at one time.
func ran(at, window float64, usages ...string) *published {
	return started(-3600, at, window, usages...)
}

// started returns a point of containers that started at start, all sampled at one time.
func started(start, at, window float64, usages ...string) *published {
	return &published{Time: at, Window: window, Newest: at, Started: start, Usages: usages}
}

// TestRules has one case for each rule of docs/concepts/resource-metrics.md.
func TestRules(t *testing.T) {
	memory := func(m float64) func(*reported) { return func(r *reported) { r.memory = m } }
	start := func(s float64) func(*reported) { return func(r *reported) { r.start = s } }

	tests := map[string][]scrapeStep{
		"rate: difference of the counter by difference of the timestamps": {
			{at: 0, answer: answers(says("a", 100, -3))},
			{at: 15, answer: answers(says("a", 103, 9)), want: ran(9, 12, "a: 250000000n 1000B")},
		},
		"rate: rounded to the nanocore": {
			{at: 0, answer: answers(says("a", 100, 0))},
			{at: 15, answer: answers(says("a", 100.00000001, 15)), want: ran(15, 15, "a: 1n 1000B")},
		},
		"rate: an idle container uses nothing, and says so": {
			{at: 0, answer: answers(says("a", 100, 0))},
			{at: 15, answer: answers(says("a", 100, 15)), want: ran(15, 15, "a: 0n 1000B")},
		},
		"window: time and window are those of the container with the earliest sample": {
			{at: 0, answer: answers(says("b", 100, -5), says("a", 100, -1))},
			{at: 15, answer: answers(says("b", 110, 5), says("a", 112, 11)), want: &published{
				Time: 5, Window: 10, Newest: 11, Started: -3600, Usages: usages("a: 1000000000n 1000B", "b: 1000000000n 1000B")}},
		},
		"window: at least a second": {
			{at: 0, answer: answers(says("a", 100, 0))},
			{at: 1, answer: answers(says("a", 101, 0.9))},
			{at: 2, answer: answers(says("a", 104, 2)), want: ran(2, 2, "a: 2000000000n 1000B")},
		},
		"window: at most five minutes": {
			{at: 0, answer: answers(says("a", 100, 0))},
			{at: 301, answer: answers(says("a", 400, 301))},
			{at: 316, answer: answers(says("a", 415, 316)), want: ran(316, 15, "a: 1000000000n 1000B")},
		},
		"failed scrapes lose nothing": {
			{at: 0, answer: answers(says("a", 100, 0))},
			{at: 15, answer: answer{broken: true, pods: map[string][]reported{"p": {says("a", 999, 15)}}}},
			{at: 30, answer: answers(says("a", 130, 30)), want: ran(30, 30, "a: 1000000000n 1000B")},
		},
		"frozen kubelet: no new point": {
			{at: 0, answer: answers(says("a", 100, 0))},
			{at: 15, answer: answers(says("a", 101, 10)), want: ran(10, 10, "a: 100000000n 1000B")},
			{at: 30, answer: answers(says("a", 101, 10))},
			{at: 45, answer: answers(says("a", 101, 10))},
		},
		"a container that was not renewed keeps its rate": {
			{at: 0, answer: answers(says("a", 100, 0), says("b", 100, 0))},
			{at: 15, answer: answers(says("a", 110, 10), says("b", 110, 10)), want: ran(10, 10, "a: 1000000000n 1000B", "b: 1000000000n 1000B")},
			{at: 30, answer: answers(says("a", 110, 10), says("b", 140, 25)), want: &published{
				Time: 10, Window: 10, Newest: 25, Started: -3600, Usages: usages("a: 1000000000n 1000B", "b: 2000000000n 1000B")}},
		},
		"restart: the old counter does not count": {
			{at: 0, answer: answers(says("a", 100, 0))},
			{at: 15, answer: answers(says("a", 50, 15).with(start(10)))},
			{at: 30, answer: answers(says("a", 65, 30).with(start(10))), want: started(10, 30, 15, "a: 1000000000n 1000B")},
		},
		"restart: a sample from before the start is of the old run": {
			{at: 0, answer: answers(says("a", 100, 0))},
			{at: 15, answer: answers(says("a", 105, 5).with(start(10))), want: ran(5, 5, "a: 1000000000n 1000B")},
			{at: 30, answer: answers(says("a", 8, 20).with(start(10))), want: started(10, 20, 10, "a: 800000000n 1000B")},
		},
		"one body lacks the start": {
			{at: 0, answer: answers(says("a", 100, 0).with(start(-1000)))},
			{at: 15, answer: answers(says("a", 101, 15).with(start(missing))), want: started(-1000, 15, 15, "a: 66666667n 1000B")},
			{at: 30, answer: answers(says("a", 102, 30).with(start(-1000))), want: started(-1000, 30, 15, "a: 66666667n 1000B")},
		},
		"counter reset: discarded": {
			{at: 0, answer: answers(says("a", 100, 0))},
			{at: 15, answer: answers(says("a", 5, 15))},
			{at: 30, answer: answers(says("a", 20, 30)), want: ran(30, 15, "a: 1000000000n 1000B")},
		},
		"counter reset: no rate from the start, which is not recent proof": {
			{at: 0, answer: answer{node: busyNode(-1)}},
			{at: 15, answer: answers(says("a", 10, 12).with(start(0))), want: started(0, 12, 12, "a: 833333333n 1000B")},
			{at: 30, answer: answers(says("a", 5, 25).with(start(0)))},
		},
		"fresh container: its first rate is from its start": {
			{at: 0, answer: answer{node: busyNode(-1)}},
			{at: 15, answer: answers(says("a", 6, 12).with(start(0))), want: started(0, 12, 12, "a: 500000000n 1000B")},
			{at: 30, answer: answers(says("a", 16, 22).with(start(0))), want: started(0, 22, 10, "a: 1000000000n 1000B")},
		},
		"fresh container: not before it is ten seconds old": {
			{at: 0, answer: answer{node: busyNode(-1)}},
			{at: 15, answer: answers(says("a", 6, 9.9).with(start(0)))},
			{at: 30, answer: answers(says("a", 16, 19.9).with(start(0))), want: started(0, 19.9, 10, "a: 1000000000n 1000B")},
		},
		"fresh container: not when the last scrape missed it": {
			{at: 0, answer: answer{node: busyNode(-1)}},
			{at: 60, answer: answers(says("a", 46, 46).with(start(0)))},
			{at: 75, answer: answers(says("a", 61, 61).with(start(0))), want: started(0, 61, 15, "a: 1000000000n 1000B")},
		},
		"fresh container: not without a start": {
			{at: 0, answer: answer{node: busyNode(-1)}},
			{at: 15, answer: answers(says("a", 6, 12).with(start(missing)))},
			{at: 30, answer: answers(says("a", 16, 22).with(start(missing))), want: &published{
				Time: 22, Window: 10, Newest: 22, Usages: usages("a: 1000000000n 1000B")}},
		},
		"fresh container after a restart": {
			{at: 0, answer: answers(says("a", 100, 0))},
			{at: 30, answer: answers(says("a", 10, 25).with(start(5))), want: started(5, 25, 20, "a: 500000000n 1000B")},
		},
		"partly sampled pod: the last complete point stays": {
			{at: 0, answer: answers(says("a", 100, 0))},
			{at: 15, answer: answers(says("a", 115, 15)), want: ran(15, 15, "a: 1000000000n 1000B")},
			// A new container is too young for a rate.
			{at: 30, answer: answers(says("a", 130, 30), says("b", 1, 29).with(start(25)))},
			{at: 45, answer: answers(says("a", 145, 45), says("b", 16, 44).with(start(25))), want: &published{
				Time: 44, Window: 15, Newest: 45, Started: 25, Usages: usages("a: 1000000000n 1000B", "b: 1000000000n 1000B")}},
		},
		"partly sampled pod: a series that is missing": {
			{at: 0, answer: answers(says("a", 100, 0), says("b", 100, 0))},
			{at: 15, answer: answers(says("a", 115, 15), says("b", 115, 15).with(memory(missing)))},
			{at: 30, answer: answers(says("a", 130, 30), says("b", missing, 30))},
			{at: 45, answer: answers(says("a", 145, 45), says("b", 145, 45)), want: ran(45, 15, "a: 1000000000n 1000B", "b: 1000000000n 1000B")},
		},
		"partly sampled pod: a container that was not sampled yet": {
			{at: 0, answer: answers(says("a", 100, 0))},
			{at: 15, answer: answers(says("a", 115, 15), says("b", missing, 15).with(memory(missing)))},
		},
		"zero CPU counter: no figure": {
			{at: 0, answer: answers(says("a", 100, 0), says("b", 0, 0))},
			{at: 15, answer: answers(says("a", 115, 15), says("b", 0, 15))},
		},
		"zero memory while the counter goes on, beside a container with memory: zero": {
			{at: 0, answer: answers(says("a", 100, 0), says("b", 12.5, 0).with(memory(0)))},
			{at: 15, answer: answers(says("a", 103, 15), says("b", 12.5075, 15).with(memory(0))), want: ran(15, 15, "a: 200000000n 1000B", "b: 500000n 0B")},
			// Not if the memory of the other is not known.
			{at: 30, answer: answers(says("a", 106, 30).with(memory(missing)), says("b", 12.515, 30).with(memory(0)))},
		},
		"zero memory of all containers while their counters go on: no figure": {
			{at: 0, answer: answers(says("a", 100, 0).with(memory(0)), says("b", 100, 0).with(memory(0)))},
			{at: 15, answer: answers(says("a", 115, 15).with(memory(0)), says("b", 101, 15).with(memory(0)))},
			// Nor if the other one has ended.
			{at: 30, answer: answers(says("a", 115, 30).with(memory(0)), says("b", 102, 30).with(memory(0)))},
			{at: 45, answer: answers(says("b", 103, 45)), want: ran(45, 15, "b: 66666667n 1000B")},
		},
		"ended container, all zero: does not count": {
			{at: 0, answer: answers(says("a", 100, 0), says("init", 0, 0).with(memory(0)))},
			{at: 15, answer: answers(says("a", 115, 15), says("init", 0, 15).with(memory(0))), want: ran(15, 15, "a: 1000000000n 1000B")},
		},
		"ended container, counter still and memory zero: does not count": {
			{at: 0, answer: answers(says("a", 100, 0), says("init", 5, 0).with(memory(0)))},
			{at: 15, answer: answers(says("a", 115, 15), says("init", 5, 15).with(memory(0))), want: ran(15, 15, "a: 1000000000n 1000B")},
			// Nor when its sample is no longer refreshed.
			{at: 30, answer: answers(says("a", 130, 30), says("init", 5, 15).with(memory(0))), want: ran(30, 15, "a: 1000000000n 1000B")},
			// But if it runs again.
			{at: 45, answer: answers(says("a", 145, 45), says("init", 20, 45)), want: ran(45, 15, "a: 1000000000n 1000B", "init: 500000000n 1000B")},
		},
		"all containers have ended: no point": {
			{at: 0, answer: answers(says("a", 0, 0).with(memory(0)))},
			{at: 15, answer: answers(says("a", 0, 15).with(memory(0)))},
		},
		"a container that left the body does not count": {
			{at: 0, answer: answers(says("a", 100, 0), says("init", 100, 0))},
			{at: 15, answer: answers(says("a", 115, 15)), want: ran(15, 15, "a: 1000000000n 1000B")},
			// A container that returns has no baseline.
			{at: 30, answer: answers(says("a", 130, 30), says("init", 200, 30))},
		},
		"clock set back: a new baseline": {
			{at: 0, answer: answers(says("a", 100, 60))},
			{at: 15, answer: answers(says("a", 115, 15))},
			{at: 30, answer: answers(says("a", 130, 30)), want: ran(30, 15, "a: 1000000000n 1000B")},
		},
		"clocks apart: the kubelet's own count": {
			{at: 0, answer: answers(says("a", 100, 100))},
			{at: 15, answer: answers(says("a", 115, 115)), want: ran(115, 15, "a: 1000000000n 1000B")},
		},
		"implausible rate: a new baseline": {
			{at: 0, answer: answers(says("a", 100, 0))},
			{at: 15, answer: answers(says("a", 1e9, 15))},
			{at: 30, answer: answers(says("a", 1e9+15, 30)), want: ran(30, 15, "a: 1000000000n 1000B")},
		},
		"swap where it is reported": {
			{at: 0, answer: answers(says("a", 100, 0), says("b", 100, 0))},
			{at: 15, answer: answers(says("a", 115, 15).with(func(r *reported) { r.swap = 0 }), says("b", 115, 15)),
				want: ran(15, 15, "a: 1000000000n 1000B 0B swap", "b: 1000000000n 1000B")},
			{at: 30, answer: answers(says("a", 130, 30), says("b", 130, 30).with(func(r *reported) { r.swap = 512 })),
				want: ran(30, 15, "a: 1000000000n 1000B", "b: 1000000000n 1000B 512B swap")},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			var state nodeState
			for i, s := range steps {
				_, pods, _ := scrapeText(t, &state, s.answer.text(), s.at, s.answer.broken)
				var got *published
				for _, u := range pods {
					if u.Key != (samplestore.Key{Namespace: "ns", Name: "p"}) || u.Point.Node != "n1" {
						t.Errorf("scrape %d: published %+v", i, u)
					}
					got = short(u.Point)
				}
				if diff := cmp.Diff(s.want, got); diff != "" {
					t.Errorf("scrape %d: published (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

func TestNodeRules(t *testing.T) {
	node := func(cpu, at float64) *reported { return &reported{cpu: cpu, at: at, memory: 5000, swap: missing} }
	swapping := node(130, 30)
	swapping.swap = 7
	empty := node(145, 45)
	empty.memory = 0
	steps := []struct {
		at   float64
		node *reported
		want *published
	}{
		{0, node(100, 0), nil},
		{15, node(115, 10), &published{Time: 10, Window: 10, Newest: 10, Usages: usages(": 1500000000n 5000B")}},
		{20, node(115, 10), nil}, // not renewed
		{30, swapping, &published{Time: 30, Window: 20, Newest: 30, Usages: usages(": 750000000n 5000B 7B swap")}},
		{45, empty, nil}, // no figure
		{60, nil, nil},   // not in the body
		{75, node(175, 75), &published{Time: 75, Window: 30, Newest: 75, Usages: usages(": 1000000000n 5000B")}},
		{90, node(5, 90), nil}, // rebooted
		{105, node(20, 105), &published{Time: 105, Window: 15, Newest: 105, Usages: usages(": 1000000000n 5000B")}},
	}
	var state nodeState
	for i, s := range steps {
		nodes, _, _ := scrapeText(t, &state, answer{node: s.node}.text(), s.at, false)
		var got *published
		for _, u := range nodes {
			if u.Key != (samplestore.Key{Name: "n1"}) || u.Point.Node != "n1" || u.Point.Started != 0 {
				t.Errorf("scrape %d: published %+v", i, u)
			}
			got = short(u.Point)
		}
		if diff := cmp.Diff(s.want, got); diff != "" {
			t.Errorf("scrape %d: published (-want +got):\n%s", i, diff)
		}
	}
}
