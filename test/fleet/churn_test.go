// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// reported is the value and timestamp of a series, false if the body has none.
func reported(t *testing.T, n *Node, at time.Time, family, labels string) (float64, time.Time, bool) {
	t.Helper()
	m := series(parse(t, n.AppendBody(nil, at)), family)[labels]
	if m == nil {
		return 0, time.Time{}, false
	}
	return value(m), time.UnixMilli(m.GetTimestampMs()), true
}

func TestRestartResetsTheContainerAndNothingElse(t *testing.T) {
	f, clock := newFleet(t, Options{PodsPerNode: 3})
	n := f.Nodes()[0]
	old := n.Pods()[1]
	key, container := old.Key(), old.Containers[0].Name+"/"+old.Namespace+"/"+old.Name
	beforeCPU := old.Containers[0].CPU(epoch)
	beforePod, beforeNode := old.CPU(epoch), n.CPU(epoch)

	if err := f.Restart(key); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := reported(t, n, epoch, "container_cpu_usage_seconds_total", container); ok {
		t.Error("the container is reported before its first sample")
	}
	clock.Step(30 * time.Second)
	cpu, sampled, ok := reported(t, n, clock.Now(), "container_cpu_usage_seconds_total", container)
	if !ok || cpu >= beforeCPU || cpu <= 0 || sampled.Before(epoch) {
		t.Errorf("CPU %v at %v (%v), want a small one after %v", cpu, sampled, ok, beforeCPU)
	}
	if started, _, _ := reported(t, n, clock.Now(), "container_start_time_seconds", container); started != float64(epoch.Unix()) {
		t.Errorf("start time %v, want %v", started, epoch.Unix())
	}
	pod, _, _ := reported(t, n, clock.Now(), "pod_cpu_usage_seconds_total", old.Namespace+"/"+old.Name)
	if grown := pod - beforePod; grown <= 0 || grown > 60 {
		t.Errorf("the pod's counter went from %v to %v", beforePod, pod)
	}
	node, _, _ := reported(t, n, clock.Now(), "node_cpu_usage_seconds_total", "")
	if grown := node - beforeNode; grown <= 0 || grown > 600 {
		t.Errorf("the node's counter went from %v to %v", beforeNode, node)
	}
}

func TestMoveStartsThePodElsewhere(t *testing.T) {
	f, clock := newFleet(t, Options{Nodes: 2, PodsPerNode: 2})
	from, to := f.Nodes()[0], f.Nodes()[1]
	key := from.Pods()[0].Key()
	labels := key.Namespace + "/" + key.Name
	if err := f.Move(key, to.Name); err != nil {
		t.Fatal(err)
	}
	clock.Step(time.Minute)
	if _, _, ok := reported(t, from, clock.Now(), "pod_cpu_usage_seconds_total", labels); ok {
		t.Error("the old node still reports the pod")
	}
	cpu, _, ok := reported(t, to, clock.Now(), "pod_cpu_usage_seconds_total", labels)
	if !ok || cpu <= 0 || cpu > 120 {
		t.Errorf("the new node reports %v (%v), want what a minute takes", cpu, ok)
	}
	if pods := to.Pods(); len(pods) != 3 || pods[2].Key() != key || !pods[2].Start.Equal(epoch) {
		t.Errorf("the new node has %d pods, the last one %+v", len(pods), pods[len(pods)-1])
	}
}

func TestUnknownPodsAndNodes(t *testing.T) {
	f, _ := newFleet(t, Options{PodsPerNode: 1})
	nobody, somebody := types.NamespacedName{Namespace: "a", Name: "b"}, f.Nodes()[0].Pods()[0].Key()
	for want, err := range map[string]error{
		"restarting pod: the fleet has no pod a/b": f.Restart(nobody),
		"moving pod: the fleet has no pod a/b":     f.Move(nobody, "x"),
		`the fleet has no node "x"`:                f.Move(somebody, "x"),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that contains %q", err, want)
		}
	}
}

// Through many restarts and moves the counter of each node never falls, no sample
// changes its value afterwards, and the books stay small.
func TestRestartsAndMovesKeepTheBooks(t *testing.T) {
	f, clock := newFleet(t, Options{Nodes: 4, PodsPerNode: 5, Seed: 2})
	var keys []types.NamespacedName
	for _, n := range f.Nodes() {
		for _, p := range n.Pods() {
			keys = append(keys, p.Key())
		}
	}
	type sampled struct {
		value float64
		at    time.Time
	}
	last := map[string]sampled{}
	random := rand.New(rand.NewPCG(2, 2))
	for range 500 {
		for _, n := range f.Nodes() {
			cpu, at, _ := reported(t, n, clock.Now(), "node_cpu_usage_seconds_total", "")
			before, seen := last[n.Name]
			if seen && (cpu < before.value-1e-9 || at.Equal(before.at) && math.Abs(cpu-before.value) > 1e-9) {
				t.Fatalf("%s: %v at %v after %v at %v", n.Name, cpu, at, before.value, before.at)
			}
			if growth := (cpu - before.value) / at.Sub(before.at).Seconds(); seen && at.After(before.at) && growth > 64 {
				t.Fatalf("%s used %v cores", n.Name, growth)
			}
			last[n.Name] = sampled{cpu, at}
			if books := len(n.state.Load().past.ended); books > 100 {
				t.Fatalf("%s remembers %d containers that are gone", n.Name, books)
			}
		}
		clock.Step(3 * time.Second)
		if err := f.Restart(keys[random.IntN(len(keys))]); err != nil {
			t.Fatal(err)
		}
		key, to := keys[random.IntN(len(keys))], f.Nodes()[random.IntN(len(f.Nodes()))]
		if err := f.Move(key, to.Name); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(to.Pods(), func(p *Pod) bool { return p.Key() == key }) {
			t.Fatalf("%s is not on %s", key, to.Name)
		}
	}
	total := 0
	for _, n := range f.Nodes() {
		total += len(n.Pods())
	}
	if total != 20 {
		t.Errorf("%d pods, want 20", total)
	}
}

// Scrapes, restarts, moves and faults at once: for the race detector.
func TestScrapesDuringChangesAndFaults(t *testing.T) {
	f, clock := newFleet(t, Options{Nodes: 3, PodsPerNode: 3})
	start(t, f)
	c := newClient(t, f, true)
	change := func(i int) error {
		clock.Step(time.Second)
		pods := slices.Concat(f.Nodes()[0].Pods(), f.Nodes()[1].Pods(), f.Nodes()[2].Pods())
		if err := f.Restart(pods[i%9].Key()); err != nil {
			return err
		}
		if err := f.Move(pods[i*2%9].Key(), f.Nodes()[i%3].Name); err != nil {
			return err
		}
		kind := []Kind{NaN, Duplicate, Frozen, Forbidden, ""}[i%5]
		return f.SetFault(Fault{Kind: kind}, f.Nodes()[i%3].Name)
	}
	done := make(chan error, 1)
	go func() {
		for i := range 100 {
			if err := change(i); err != nil {
				done <- err
				return
			}
		}
		done <- f.SetFault(Fault{})
	}()
	for scraping := true; scraping; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			scraping = false
		default:
		}
		for _, n := range f.Nodes() {
			c.scrape(t.Context(), n) // any answer will do, as long as there is one
		}
	}
	for _, n := range f.Nodes() {
		if a := c.scrape(t.Context(), n); a.err != nil || string(a.body) != string(n.AppendBody(nil, clock.Now())) {
			t.Errorf("%s in the end: status %d, error %v", n.Name, a.status, a.err)
		}
	}
}
