// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet/textparse"
)

var epoch = time.Unix(1_750_000_000, 0)

// now is when the bodies of these tests are parsed, Unix ms.
const now int64 = 1_750_000_000_000

// read has the values of the series that the last body has of a container.
type read struct {
	CPU, Memory, Swap, Start string
}

// containersOf yields all containers by namespace/pod/container, and the node as
// "node" if it is in the last body.
func containersOf(state *nodeState) iter.Seq2[string, *container] {
	return func(yield func(string, *container) bool) {
		if state.node.body == state.body && !yield("node", &state.node) {
			return
		}
		for key, p := range state.pods {
			for _, c := range p.containers {
				if !yield(key.Namespace+"/"+key.Name+"/"+c.name(), c) {
					return
				}
			}
		}
	}
}

// readings returns the values of the last body, with times relative to now.
func readings(state *nodeState) map[string]read { return readingsAt(state, now) }

// readingsAt returns the values of the last body, with times relative to one in Unix ms.
func readingsAt(state *nodeState, at int64) map[string]read {
	all := map[string]read{}
	for name, c := range containersOf(state) {
		if c.body != state.body || c.found == 0 {
			continue
		}
		var r read
		if c.has(seriesCPU) {
			r.CPU = fmt.Sprintf("%v@%d", c.cpu, c.cpuTime-at)
		}
		if c.has(seriesMemory) {
			r.Memory = fmt.Sprint(c.memory)
		}
		if c.has(seriesSwap) {
			r.Swap = fmt.Sprint(c.swap)
		}
		if c.has(seriesStart) {
			r.Start = fmt.Sprint(c.start - at)
		}
		all[name] = r
	}
	return all
}

// parseBody parses a body at a time in Unix ms. It neither commits nor aborts it.
func parseBody(tb testing.TB, state *nodeState, r io.Reader, at int64, w *workspace) parseStats {
	tb.Helper()
	state.begin()
	p := parser{state: state, now: at}
	if err := textparse.ReadLines(r, 1<<30, w.buffer[:], p.lines, p.skipLine); err != nil {
		tb.Fatal(err)
	}
	return p.stats
}

// readText parses a body at now, and commits it.
func readText(t *testing.T, state *nodeState, r io.Reader) parseStats {
	t.Helper()
	return readTextAt(t, state, r, now)
}

// readTextAt parses a body at a time in Unix ms, and commits it.
func readTextAt(t *testing.T, state *nodeState, r io.Reader, at int64) parseStats {
	t.Helper()
	stats := parseBody(t, state, r, at, new(workspace))
	state.commit()
	return stats
}

func skips(t *parseStats) map[string]int {
	counts := map[string]int{}
	for reason, n := range t.skipped {
		if n > 0 {
			counts[skipReason(reason).String()] = n
		}
	}
	return counts
}

// recordedAt is shortly after a real kubelet has answered with the recorded body, Unix ms.
const recordedAt int64 = 1_795_528_611_000

// recordedBody returns the body of a real kubelet, which the fake ones are compared with too.
func recordedBody(t *testing.T) string {
	t.Helper()
	body, err := os.ReadFile("../../test/fleet/testdata/kubelet-1.37.txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestParse(t *testing.T) {
	const labels = `{container="c",namespace="n",pod="p"}`
	one := func(r read) map[string]read { return map[string]read{"n/p/c": r} }
	node := func(r read) map[string]read { return map[string]read{"node": r} }
	tests := map[string]struct {
		body string
		// at is when the body is parsed, default now.
		at    int64
		want  map[string]read
		skips map[string]int
	}{
		"recorded from a kubelet 1.37": {
			body: recordedBody(t),
			at:   recordedAt,
			want: map[string]read{
				"node":                               {CPU: "8296.796530592@-4404", Memory: "7950712832", Swap: "0"},
				"default/burn-5fb685fddf-dmltz/burn": {CPU: "5.535031048@-748", Memory: "1343488", Swap: "0", Start: "-94225"},
				"default/burn-5fb685fddf-fbh4b/burn": {CPU: "6.458394255@-750", Memory: "1601536", Swap: "0", Start: "-109309"},
				"default/burn-5fb685fddf-lrnrv/burn": {CPU: "7.963985485@-753", Memory: "1941504", Swap: "0", Start: "-134500"},
				"kube-system/metrics-server-c55d96477-9dgzk/metrics-server":                 {CPU: "7.250297154@-745", Memory: "34750464", Swap: "0", Start: "-156834"},
				"metrics-backend-system/metrics-backend-operator-5fbc6fcbb4-24pbm/operator": {CPU: "1.251993555@-746", Memory: "22962176", Swap: "0", Start: "-50694"},
				"metrics-backend-system/metrics-serving-cluster-7bb75d4fb7-8kqcz/serving":   {CPU: "1.347475087@-752", Memory: "22040576", Swap: "0", Start: "-44428"},
				"metrics-backend-system/metrics-serving-cluster-7bb75d4fb7-nhcjs/serving":   {CPU: "1.355080341@-747", Memory: "21315584", Swap: "0", Start: "-44723"},
			},
		},
		"a kubelet's body": {
			body: `# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the container in core-seconds
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="a",namespace="n",pod="p"} 4.710169 1749999995000
container_cpu_usage_seconds_total{container="b",namespace="n",pod="p"} 1.23456789e+06 1749999996000
# HELP container_memory_working_set_bytes [STABLE] Current working set of the container in bytes
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="a",namespace="n",pod="p"} 1.1890688e+07 1749999995000
container_memory_working_set_bytes{container="b",namespace="n",pod="p"} 4096 1749999996000
# HELP container_start_time_seconds [STABLE] Start time of the container since unix epoch in seconds
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="a",namespace="n",pod="p"} 1.7499990001239e+09
container_start_time_seconds{container="b",namespace="n",pod="p"} 1.749999e+09
# HELP container_swap_limit_bytes [ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems
# TYPE container_swap_limit_bytes gauge
container_swap_limit_bytes{container="a",namespace="n",pod="p"} 0 1749999995000
# HELP container_swap_usage_bytes [ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems
# TYPE container_swap_usage_bytes gauge
container_swap_usage_bytes{container="a",namespace="n",pod="p"} 8192 1749999995000
# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the node in core-seconds
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 357.35491 1749999999000
# HELP node_memory_working_set_bytes [STABLE] Current working set of the node in bytes
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 1.616273408e+09 1749999999000
# HELP node_swap_usage_bytes [ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems
# TYPE node_swap_usage_bytes gauge
node_swap_usage_bytes 0 1749999999000
# HELP pod_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the pod in core-seconds
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="n",pod="p"} 4.67812 1749999995000
# HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, 0 otherwise
# TYPE resource_scrape_error gauge
resource_scrape_error 0
`,
			want: map[string]read{
				"n/p/a": {CPU: "4.710169@-5000", Memory: "11890688", Swap: "8192", Start: "-999877"},
				"n/p/b": {CPU: "1.23456789e+06@-4000", Memory: "4096", Start: "-1000000"},
				"node":  {CPU: "357.35491@-1000", Memory: "1616273408", Swap: "0"},
			},
		},
		"no timestamp: the time of the scrape": {
			body: "node_cpu_usage_seconds_total 7\n",
			want: node(read{CPU: "7@0"}),
		},
		"blanks wherever they may be": {
			body: "\t container_cpu_usage_seconds_total { container = \"c\" ,\tnamespace=\"n\", pod=\"p\" , } \t 1 \t 1750000000000\t\n",
			want: one(read{CPU: "1@0"}),
		},
		"labels in another order, and others between": {
			body: `container_cpu_usage_seconds_total{pod="p",x="",container="c",Pod="q",namespace="n",} 1` + "\n",
			want: one(read{CPU: "1@0"}),
		},
		"escapes in other labels": {
			body: `container_cpu_usage_seconds_total{a="\"}, pod=\"x\\",container="c",namespace="n",b="\n}",pod="p"} 1` + "\n",
			want: one(read{CPU: "1@0"}),
		},
		"no blank before the value": {
			body: `container_cpu_usage_seconds_total{container="c",namespace="n",pod="p"}1 1750000000000` + "\n",
			want: one(read{CPU: "1@0"}),
		},
		"labels on the node's series": {
			body: `node_cpu_usage_seconds_total{zone="a}b"} 1` + "\nnode_memory_working_set_bytes{} 2\n",
			want: node(read{CPU: "1@0", Memory: "2"}),
		},
		"names that only begin or end alike": {
			body: "node_cpu_usage_seconds_total_x 1\nxnode_cpu_usage_seconds_total 1\nnode_cpu_usage_seconds 1\nNode_cpu_usage_seconds_total 1\n",
			want: map[string]read{},
		},
		"labels that only begin or end alike": {
			body:  `container_cpu_usage_seconds_total{init_container="z",container_name="y",namespace="n",pod="p"} 1` + "\n",
			want:  map[string]read{},
			skips: map[string]int{"Labels": 1},
		},
		"families that are not read": {
			body: "foo 1\nbar{a=\"b\"} NaN\n{\"quoted\"} 1\npod_cpu_usage_seconds_total{pod=\"p\"} x\n",
			want: map[string]read{},
		},
		"numbers in every notation": {
			body: "node_cpu_usage_seconds_total +1.5E+2\nnode_memory_working_set_bytes 12345678901234567e-3\nnode_swap_usage_bytes .5e1\n",
			want: node(read{CPU: "150@0", Memory: "12345678901234", Swap: "5"}),
		},
		"minus zero": {
			body: "node_memory_working_set_bytes -0\n",
			want: node(read{Memory: "0"}),
		},
		"no labels": {
			body:  "container_cpu_usage_seconds_total 1\ncontainer_memory_working_set_bytes{} 1\ncontainer_cpu_usage_seconds_total\ncontainer_cpu_usage_seconds_total{\n",
			want:  map[string]read{},
			skips: map[string]int{"Labels": 3, "Malformed": 1},
		},
		"values that are no names": {
			body: `container_cpu_usage_seconds_total{container="",namespace="n",pod="p"} 1
container_cpu_usage_seconds_total{container="c",namespace="n/m",pod="p"} 1
container_cpu_usage_seconds_total{container="c",namespace="n",pod="p\\"} 1
container_cpu_usage_seconds_total{container="c` + "\xff" + `",namespace="n",pod="p"} 1
container_cpu_usage_seconds_total{container="c",namespace="n",pod="` + strings.Repeat("p", 254) + `"} 1
`,
			want:  map[string]read{},
			skips: map[string]int{"Labels": 5},
		},
		"malformed labels": {
			body: `container_cpu_usage_seconds_total{container="c",namespace="n",pod="p" 1
container_cpu_usage_seconds_total{container="c",namespace="n",pod="p} 1
container_cpu_usage_seconds_total{container="c",namespace="n",pod=p} 1
container_cpu_usage_seconds_total{container="c" namespace="n",pod="p"} 1
container_cpu_usage_seconds_total{container="c",,namespace="n",pod="p"} 1
container_cpu_usage_seconds_total{container="c",namespace="n",pod="p\t"} 1
container_cpu_usage_seconds_total{container="c",namespace="n",pod="p\
container_cpu_usage_seconds_total{container="c",container="c",namespace="n",pod="p"} 1
container_cpu_usage_seconds_total{0container="c",namespace="n",pod="p"} 1
container_cpu_usage_seconds_total{container
container_cpu_usage_seconds_total{container=
node_cpu_usage_seconds_total{ 1
`,
			want:  map[string]read{},
			skips: map[string]int{"Malformed": 12},
		},
		"malformed values": {
			body:  "node_cpu_usage_seconds_total\nnode_cpu_usage_seconds_total x\nnode_cpu_usage_seconds_total 0x10\nnode_cpu_usage_seconds_total 1_0\nnode_cpu_usage_seconds_total 1 2 3\nnode_cpu_usage_seconds_total 1 2x\nnode_cpu_usage_seconds_total 1 1e3\nnode_cpu_usage_seconds_total 1e\nnode_cpu_usage_seconds_total .\nnode_cpu_usage_seconds_total 1 99999999999999999999\nnode_cpu_usage_seconds_total 1\r\n",
			want:  map[string]read{},
			skips: map[string]int{"Malformed": 11},
		},
		"a malformed line costs that line": {
			body:  "node_cpu_usage_seconds_total x\nnode_memory_working_set_bytes 2\nnode_cpu_usage_seconds_total 1\n",
			want:  node(read{CPU: "1@0", Memory: "2"}),
			skips: map[string]int{"Malformed": 1},
		},
		"not finite": {
			body:  "node_cpu_usage_seconds_total NaN\nnode_cpu_usage_seconds_total +Inf\nnode_memory_working_set_bytes -Inf\nnode_swap_usage_bytes 1e999\nnode_swap_usage_bytes Inf\n",
			want:  map[string]read{},
			skips: map[string]int{"NotFinite": 5},
		},
		"negative": {
			body:  "node_cpu_usage_seconds_total -1\nnode_memory_working_set_bytes -1e-9\ncontainer_start_time_seconds" + labels + " -1\n",
			want:  map[string]read{"n/p/c": {}},
			skips: map[string]int{"Negative": 3},
		},
		"too large": {
			body:  "node_cpu_usage_seconds_total 1.9e10\nnode_memory_working_set_bytes 9.1e15\nnode_swap_usage_bytes 1e300\n",
			want:  map[string]read{},
			skips: map[string]int{"TooLarge": 3},
		},
		"the largest": {
			body: "node_cpu_usage_seconds_total 1.8446744073e10\nnode_memory_working_set_bytes 9007199254740992\n",
			want: node(read{CPU: "1.8446744073e+10@0", Memory: "9007199254740992"}),
		},
		"timestamps out of bounds": {
			body:  "node_cpu_usage_seconds_total 1 1750000120001\nnode_memory_working_set_bytes 1 1749996399999\nnode_swap_usage_bytes 1 -5\ncontainer_start_time_seconds" + labels + " 1750000121\n",
			want:  map[string]read{"n/p/c": {}},
			skips: map[string]int{"Future": 2, "Old": 2},
		},
		"a start with the start as timestamp, as kubelets up to 1.28 write it": {
			body: "container_start_time_seconds" + labels + " 1749136000 1749136000000\n",
			want: one(read{Start: "-864000000"}),
		},
		"timestamps at the bounds": {
			body: "node_cpu_usage_seconds_total 1 1750000120000\nnode_memory_working_set_bytes 1 1749996400000\n",
			want: node(read{CPU: "1@120000", Memory: "1"}),
		},
		"the first of duplicates wins": {
			body:  "node_cpu_usage_seconds_total 1\nnode_cpu_usage_seconds_total 2\ncontainer_cpu_usage_seconds_total" + labels + " 3\ncontainer_cpu_usage_seconds_total{pod=\"p\",namespace=\"n\",container=\"c\"} 4\n",
			want:  map[string]read{"node": {CPU: "1@0"}, "n/p/c": {CPU: "3@0"}},
			skips: map[string]int{"Duplicate": 2},
		},
		"the last line has no newline": {
			body:  "node_memory_working_set_bytes 2\nnode_cpu_usage_seconds_total 12",
			want:  node(read{Memory: "2"}),
			skips: map[string]int{"Truncated": 1},
		},
		"a line longer than the window": {
			body:  "node_memory_working_set_bytes 2\nx" + strings.Repeat("y", 3*bufferSize) + "\nnode_cpu_usage_seconds_total 1\n",
			want:  node(read{CPU: "1@0", Memory: "2"}),
			skips: map[string]int{"Malformed": 1},
		},
		"a last line longer than the window": {
			body:  "node_memory_working_set_bytes 2\nx" + strings.Repeat("y", 3*bufferSize),
			want:  node(read{Memory: "2"}),
			skips: map[string]int{"Malformed": 1},
		},
		"lines across windows": {
			body: strings.Repeat("# filler\n", bufferSize/9-1) + "node_cpu_usage_seconds_total 1\nnode_memory_working_set_bytes 2\n",
			want: node(read{CPU: "1@0", Memory: "2"}),
		},
		"bytes that are no text": {
			body: "\x00\x01\xff\n\x1f\x8b\x08\x00\n}{\n\"\n",
			want: map[string]read{},
		},
		"empty": {body: "", want: map[string]read{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			// The result does not depend on how the body arrives.
			readers := map[string]func(string) io.Reader{
				"at once":         func(s string) io.Reader { return strings.NewReader(s) },
				"byte by byte":    func(s string) io.Reader { return iotest.OneByteReader(strings.NewReader(s)) },
				"EOF with data":   func(s string) io.Reader { return iotest.DataErrReader(strings.NewReader(s)) },
				"half of a piece": func(s string) io.Reader { return iotest.HalfReader(strings.NewReader(s)) },
			}
			for _, how := range slices.Sorted(maps.Keys(readers)) {
				var state nodeState
				at := tt.at
				if at == 0 {
					at = now
				}
				got := readTextAt(t, &state, readers[how](tt.body), at)
				want := maps.Clone(tt.want)
				maps.DeleteFunc(want, func(_ string, r read) bool { return r == read{} })
				if diff := cmp.Diff(want, readingsAt(&state, at)); diff != "" {
					t.Errorf("%s: read (-want +got):\n%s", how, diff)
				}
				wantSkips := tt.skips
				if wantSkips == nil {
					wantSkips = map[string]int{}
				}
				if diff := cmp.Diff(wantSkips, skips(&got)); diff != "" {
					t.Errorf("%s: skipped (-want +got):\n%s", how, diff)
				}
				if len(wantSkips) > 0 && got.example == "" {
					t.Errorf("%s: no example of what was skipped", how)
				}
			}
		})
	}
}

func TestKubeletFailed(t *testing.T) {
	for body, want := range map[string]bool{
		"resource_scrape_error 1\n": true,
		"scrape_error 1\n":          true,
		"resource_scrape_error 0\n": false,
	} {
		var state nodeState
		if got := readText(t, &state, strings.NewReader(body)); got.kubeletFailed != want {
			t.Errorf("%q: kubeletFailed = %v, want %v", body, got.kubeletFailed, want)
		}
	}
}
