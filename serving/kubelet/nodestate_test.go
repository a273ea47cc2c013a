// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/test/heap"
)

// names returns namespace/pod/container of all containers.
func names(state *nodeState) []string {
	var all []string
	for name, c := range containersOf(state) {
		if c != &state.node {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// chain returns the containers in the order expected of the next body.
func chain(state *nodeState) []string {
	var order []string
	for c := state.first; c != nil; c = c.next {
		order = append(order, c.name())
	}
	return order
}

// families returns a body in which each family has the containers in that order.
func families(value int, containers ...string) string {
	var b strings.Builder
	for _, family := range []string{"container_cpu_usage_seconds_total", "container_memory_working_set_bytes"} {
		for _, c := range containers {
			fmt.Fprintf(&b, "%s{container=%q,namespace=\"ns\",pod=\"p-%s\"} %d\n", family, c, c, value)
		}
	}
	return b.String()
}

func TestNodeStateOverBodies(t *testing.T) {
	var state nodeState
	for i, order := range [][]string{
		{"a", "b", "c"},
		{"a", "b", "c"},
		{"a", "x", "b", "c"}, // one more
		{"a", "b", "c"},      // one less
		{"c", "b", "a"},      // another order
		{"z"},                // all others gone
		{},
		{"a", "b"},
	} {
		readText(t, &state, strings.NewReader(families(i+1, order...)))
		if diff := cmp.Diff(order, append([]string{}, chain(&state)...)); diff != "" {
			t.Errorf("body %d: expected order (-want +got):\n%s", i, diff)
		}
		want := map[string]read{}
		for _, c := range order {
			want["ns/p-"+c+"/"+c] = read{CPU: fmt.Sprintf("%d@0", i+1), Memory: fmt.Sprint(i + 1)}
		}
		if diff := cmp.Diff(want, readings(&state)); diff != "" {
			t.Errorf("body %d: read (-want +got):\n%s", i, diff)
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), names(&state)); diff != "" || state.containers != len(order) {
			t.Errorf("body %d: %d containers counted, want %d; held (-want +got):\n%s", i, state.containers, len(order), diff)
		}
	}
}

// TestNodeStateOrderDoesNotMatter parses containers in random orders, another one for
// each family, with the labels in any order.
func TestNodeStateOrderDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var state nodeState
	for round := range 50 {
		want := map[string]read{}
		var lines []string
		for i := range r.IntN(20) {
			pod, name := fmt.Sprintf("p%d", i%7), fmt.Sprintf("c%d", i)
			want["ns/"+pod+"/"+name] = read{CPU: fmt.Sprintf("%d@0", round*100+i), Memory: fmt.Sprint(i)}
			labels := []string{fmt.Sprintf("container=%q", name), fmt.Sprintf("pod=%q", pod), `namespace="ns"`}
			for family, value := range map[string]int{"container_cpu_usage_seconds_total": round*100 + i, "container_memory_working_set_bytes": i} {
				r.Shuffle(len(labels), func(i, j int) { labels[i], labels[j] = labels[j], labels[i] })
				lines = append(lines, fmt.Sprintf("%s{%s} %d\n", family, strings.Join(labels, ","), value))
			}
		}
		r.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		got := readText(t, &state, strings.NewReader(strings.Join(lines, "")))
		if got.reasons() != 0 {
			t.Fatalf("round %d: skipped %s", round, &got)
		}
		if diff := cmp.Diff(want, readings(&state)); diff != "" {
			t.Fatalf("round %d: read (-want +got):\n%s", round, diff)
		}
	}
}

func TestNodeStateAbort(t *testing.T) {
	var state nodeState
	scrapeText(t, &state, answers(says("a", 100, 0), says("b", 100, 0)).text(), 0, false)
	// An incomplete body changes nothing, though it has a new container and another
	// order, and lacks a container.
	scrapeText(t, &state, answers(says("x", 7, 15), says("a", 999, 15)).text(), 15, true)
	if diff := cmp.Diff([]string{"ns/p/a", "ns/p/b"}, names(&state)); diff != "" {
		t.Errorf("held after a broken body (-want +got):\n%s", diff)
	}
	_, pods, _ := scrapeText(t, &state, answers(says("a", 130, 30), says("b", 115, 30)).text(), 30, false)
	if len(pods) != 1 {
		t.Fatalf("%d points, want 1", len(pods))
	}
	want := &published{Time: 30, Window: 30, Newest: 30, Started: -3600, Usages: usages("a: 1000000000n 1000B", "b: 500000000n 1000B")}
	if diff := cmp.Diff(want, short(pods[0].Point)); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
}

func TestNodeStateBounds(t *testing.T) {
	t.Run("containers of a pod", func(t *testing.T) {
		var b strings.Builder
		for i := range maxPodContainers + 5 {
			fmt.Fprintf(&b, "container_cpu_usage_seconds_total{container=\"c%d\",namespace=\"ns\",pod=\"p\"} 1\n", i)
		}
		var state nodeState
		got := readText(t, &state, strings.NewReader(b.String()))
		if state.containers != maxPodContainers || got.skipped[skipTooMany] != 5 {
			t.Errorf("held %d, skipped %s", state.containers, &got)
		}
		_, pods, _ := scrapeText(t, &state, b.String(), 0, false)
		if len(pods) != 0 {
			t.Error("a pod that was not read as a whole was published")
		}
	})
	t.Run("containers of a node", func(t *testing.T) {
		var b strings.Builder
		for i := range maxContainers + 5 {
			fmt.Fprintf(&b, "node_cpu_usage_seconds_total 1\ncontainer_cpu_usage_seconds_total{container=\"c\",namespace=\"ns\",pod=\"p%d\"} 1\n", i)
		}
		var state nodeState
		got := parseBody(t, &state, strings.NewReader(b.String()), now, new(workspace))
		if state.containers != maxContainers || got.skipped[skipTooMany] != 5 {
			t.Errorf("held %d, skipped %s", state.containers, &got)
		}
		state.abort()
		if state.containers != 0 || len(state.pods) != 0 {
			t.Errorf("held %d containers of %d pods after a broken body, want none", state.containers, len(state.pods))
		}
	})
}

// TestRetained checks that the memory kept of a large body is bounded.
func TestRetained(t *testing.T) {
	const containers = 270
	var text strings.Builder
	for i := range containers {
		fmt.Fprintf(&text, "container_cpu_usage_seconds_total{container=\"c\",namespace=\"ns\",pod=\"p%d\",x=%q} 1\n", i, strings.Repeat("j", 60000))
	}
	body := text.String()
	kept := heap.Retained(func() *nodeState {
		var state nodeState
		for range 3 {
			readText(t, &state, strings.NewReader(body))
		}
		if state.containers != containers {
			t.Errorf("held %d containers, want %d", state.containers, containers)
		}
		return &state
	})
	// The container, its pod, names and a map entry.
	const most = containers * 1024
	if kept > most {
		t.Errorf("%.0f bytes are kept of a body of %d, want at most %d", kept, len(body), most)
	}
	t.Logf("%.0f bytes are kept of a body of %d", kept, len(body))
}

// TestPointsOfManyPods checks that points that share an allocation are independent.
func TestPointsOfManyPods(t *testing.T) {
	body := func(at float64) answer {
		a := answer{pods: map[string][]reported{}}
		for i := range 20 {
			for j := range i%3 + 1 {
				c := says(fmt.Sprintf("c%d", j), 100+at*float64(i+1), at)
				a.pods[fmt.Sprintf("p%d", i)] = append(a.pods[fmt.Sprintf("p%d", i)], c)
			}
		}
		return a
	}
	var state nodeState
	scrapeText(t, &state, body(0).text(), 0, false)
	_, pods, _ := scrapeText(t, &state, body(10).text(), 10, false)
	points := map[string]*samplestore.Point{}
	for _, u := range pods {
		points[u.Key.Name] = u.Point
	}
	if got := slices.Sorted(maps.Keys(points)); len(got) != 20 {
		t.Fatalf("points of %v, want 20", got)
	}
	for i := range 20 {
		p := points[fmt.Sprintf("p%d", i)]
		if len(p.Usages) != i%3+1 || cap(p.Usages) != len(p.Usages) {
			t.Errorf("p%d: %d usages, room for %d, want %d", i, len(p.Usages), cap(p.Usages), i%3+1)
		}
		for j, u := range p.Usages {
			if want := uint64(i+1) * 1e9; u.CPU != want || u.Name != fmt.Sprintf("c%d", j) {
				t.Errorf("p%d: %+v, want %d nanocores", i, u, want)
			}
		}
	}
}
