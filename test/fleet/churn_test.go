// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
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

	change, err := f.Restart(key)
	if err != nil {
		t.Fatal(err)
	}
	if change.Kind != Restarted || change.From != n || change.To != n || change.Pod.Containers[0].Restarts != 1 {
		t.Errorf("change %+v", change)
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
	change, err := f.Move(key, to.Name)
	if err != nil {
		t.Fatal(err)
	}
	if change.Kind != Moved || change.From != from || change.To != to || change.Pod.Key() != key {
		t.Errorf("change %+v", change)
	}
	clock.Step(time.Minute)
	if _, _, ok := reported(t, from, clock.Now(), "pod_cpu_usage_seconds_total", labels); ok {
		t.Error("the old node still reports the pod")
	}
	cpu, _, ok := reported(t, to, clock.Now(), "pod_cpu_usage_seconds_total", labels)
	if !ok || cpu <= 0 || cpu > 120 {
		t.Errorf("the new node reports %v (%v), want what a minute takes", cpu, ok)
	}
	if pod, home := f.Pod(key); home != to || pod == nil || !pod.Start.Equal(epoch) {
		t.Errorf("the pod is at %v", home)
	}
}

func TestPodsComeAndGo(t *testing.T) {
	f, _ := newFleet(t, Options{Nodes: 2, PodsPerNode: 2})
	n := f.Nodes()[0]
	added, err := f.Add(n.Name)
	if err != nil {
		t.Fatal(err)
	}
	if got := n.Pods(); len(got) != 3 || got[2] != added.Pod || added.To != n || added.From != nil {
		t.Errorf("after Add: %d pods, change %+v", len(got), added)
	}
	removed, err := f.Remove(added.Pod.Key())
	if err != nil {
		t.Fatal(err)
	}
	if got := n.Pods(); len(got) != 2 || slices.Contains(got, added.Pod) || removed.From != n || removed.To != nil {
		t.Errorf("after Remove: %d pods, change %+v", len(got), removed)
	}
	if pod, home := f.Pod(added.Pod.Key()); pod != nil || home != nil {
		t.Error("a removed pod is still found")
	}
}

func TestChurnNeedsWhatItNames(t *testing.T) {
	f, _ := newFleet(t, Options{PodsPerNode: 1})
	nobody, somebody := types.NamespacedName{Namespace: "a", Name: "b"}, f.Nodes()[0].Pods()[0].Key()
	empty, _ := newFleet(t, Options{PodsPerNode: -1})
	for name, test := range map[string]struct {
		act  func() error
		want string
	}{
		"restart":   {func() error { _, err := f.Restart(nobody); return err }, "restarting pod: the fleet has no pod a/b"},
		"move":      {func() error { _, err := f.Move(nobody, "x"); return err }, "moving pod: the fleet has no pod a/b"},
		"move to":   {func() error { _, err := f.Move(somebody, "x"); return err }, `the fleet has no node "x"`},
		"add":       {func() error { _, err := f.Add("x"); return err }, `the fleet has no node "x"`},
		"remove":    {func() error { _, err := f.Remove(nobody); return err }, "removing pod: the fleet has no pod a/b"},
		"negative":  {func() error { _, err := f.Churn(Churn{Move: -1}); return err }, "must not be negative"},
		"from none": {func() error { _, err := empty.Churn(Churn{Move: 1}); return err }, "has no pods"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := test.act(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one that contains %q", err, test.want)
			}
		})
	}
}

// Through a long churn every counter of a pod that stays, and of each node, never
// falls, no sample changes its value afterwards, and the books stay small.
func TestChurnKeepsTheBooks(t *testing.T) {
	f, clock := newFleet(t, Options{Nodes: 4, PodsPerNode: 5, Seed: 2})
	type sampled struct {
		value float64
		at    time.Time
	}
	last := map[string]sampled{}
	kinds := map[ChangeKind]int{}
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
		changes, err := f.Churn(Churn{Restart: 1, Move: 1, Replace: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			kinds[c.Kind]++
			pod, home := f.Pod(c.Pod.Key())
			if gone := c.Kind == Removed; gone != (pod == nil) && pod != nil && home != c.To {
				t.Fatalf("after %s the pod is at %v", c.Kind, home)
			}
		}
	}
	if diff := cmp.Diff(map[ChangeKind]int{Restarted: 500, Moved: 500, Added: 500, Removed: 500}, kinds); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	total := 0
	for _, n := range f.Nodes() {
		total += len(n.Pods())
	}
	if total != 20 || len(f.homes) != 20 {
		t.Errorf("%d pods, %d homes, want 20", total, len(f.homes))
	}
}

func TestChurnFollowsFromTheSeed(t *testing.T) {
	rounds := func() []string {
		f, _ := newFleet(t, Options{Nodes: 5, PodsPerNode: 5, Seed: 4})
		changes, err := f.Churn(Churn{Restart: 3, Move: 3, Replace: 3})
		if err != nil {
			t.Fatal(err)
		}
		var told []string
		for _, c := range changeList(changes) {
			told = append(told, string(c.Change)+" "+c.Pod+" "+c.From+" "+c.To)
		}
		return told
	}
	if diff := cmp.Diff(rounds(), rounds()); diff != "" {
		t.Errorf("one seed, two histories:\n%s", diff)
	}
}

// Scrapes, churn and faults at once: for the race detector.
func TestScrapesDuringChurnAndFaults(t *testing.T) {
	clock := clocktesting.NewFakeClock(epoch)
	f, err := New(Options{Nodes: 3, PodsPerNode: 3, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	start(t, f)
	c := newClient(t, f, true)
	done := make(chan error, 1)
	go func() {
		for i := range 100 {
			clock.Step(time.Second)
			if _, err := f.Churn(Churn{Restart: 1, Move: 1, Replace: 1}); err != nil {
				done <- err
				return
			}
			kind := []Kind{NaN, Duplicate, Frozen, WrongCA, ""}[i%5]
			if err := f.SetFault(Fault{Kind: kind}, f.Nodes()[i%3].Name); err != nil {
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
		if a := c.scrapeAnew(t.Context(), n); a.err != nil || string(a.body) != string(n.AppendBody(nil, clock.Now())) {
			t.Errorf("%s in the end: status %d, error %v", n.Name, a.status, a.err)
		}
	}
}
