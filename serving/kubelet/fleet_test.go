// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/test/fleet"
)

// TestTrueValues scrapes a fleet of fake kubelets with faults and churn, and checks
// that all served values are those of the fleet.
func TestTrueValues(t *testing.T) {
	const nodes, pods, step = 6, 8, 5 * time.Second
	clock := clocktesting.NewFakeClock(time.Now().Truncate(time.Second))
	f, err := fleet.New(fleet.Options{Nodes: nodes, PodsPerNode: pods, ContainersPerPod: 1, Seed: 7, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := f.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer f.Wait()
	defer cancel()
	s := newTestSource(t, clock, f.Authority().PEM, nil, testSettings())

	// runs holds all runs of each pod's container.
	runs := map[types.NamespacedName][]*fleet.Container{}
	note := func(n *fleet.Node) {
		for _, p := range n.Pods() {
			key := samplestore.Key{Namespace: p.Namespace, Name: p.Name}
			if known := runs[p.Key()]; len(known) == 0 || known[len(known)-1] != p.Containers[0] {
				runs[p.Key()] = append(known, p.Containers[0])
			}
			s.store.Pods.SetMeta(key, &samplestore.Meta{UID: types.UID(p.Name)})
		}
	}
	for _, n := range f.Nodes() {
		s.store.Nodes.SetMeta(samplestore.Key{Name: n.Name}, &samplestore.Meta{UID: "u"})
	}
	ofSamples := []fleet.Kind{fleet.NaN, fleet.Negative, fleet.Enormous, fleet.Duplicate, fleet.NoLabels, fleet.Old, fleet.Future}
	kinds := append(slices.Clone(ofSamples), fleet.Frozen, fleet.Garbage, fleet.Truncated, fleet.Aborted, fleet.Reset, fleet.Forbidden, fleet.InternalError)
	checked := map[string]bool{}
	for round := range 20 * len(kinds) {
		clock.Step(step)
		// Node 0 has no faults; each other one in turn has each fault for a minute,
		// in all its containers or, if possible, in three of them.
		kind := kinds[round/20]
		for i, n := range f.Nodes()[1:] {
			fault := fleet.Fault{}
			if round%20 >= 4 && round%20 < 16 {
				fault.Kind = kind
				if round/20 < len(ofSamples) && i%2 == 0 {
					fault.Containers = 3
				}
			}
			if err := f.SetFault(fault, n.Name); err != nil {
				t.Fatal(err)
			}
		}
		if round%7 == 0 {
			// A pod restarts, and another one moves.
			all := f.Nodes()[round%nodes].Pods()
			if len(all) > 1 {
				if err := f.Restart(all[0].Key()); err != nil {
					t.Fatal(err)
				}
				if err := f.Move(all[1].Key(), f.Nodes()[(round+1)%nodes].Name); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i, n := range f.Nodes() {
			note(n)
			if (round+i)%3 == 0 {
				s.scrapeOnce(ctx, NodeFrom(f.NodeObject(n)))
			}
		}
		for o := range s.store.Nodes.List("", samplestore.Key{}) {
			if checked[o.Name+o.Point.ResourceVersion()] {
				continue // churn has changed the node's containers
			}
			n := f.Node(o.Name)
			at := o.Point.Time.AsTime()
			used := n.CPU(at) - n.CPU(at.Add(-o.Point.Window))
			checkRate(t, o, used)
			// A frozen body has pods that the node no longer has.
			if got, want := o.Point.Usages[0].Memory, n.Memory(at); got != want && kind != fleet.Frozen {
				t.Errorf("%s: %d bytes, truly %d", o.Name, got, want)
			}
			checked[o.Name+o.Point.ResourceVersion()] = true
		}
		for o := range s.store.Pods.List("", samplestore.Key{}) {
			at, started := o.Point.Time.AsTime(), o.Point.Started.AsTime()
			c := runAt(runs[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}], started)
			if c == nil {
				t.Fatalf("%v started at %s, but no container of it did", o.Key, started)
			}
			used := c.CPU(at) - c.CPU(at.Add(-o.Point.Window))
			checkRate(t, o, used)
			if got, want := o.Point.Usages[0].Memory, c.Memory(at); got != want {
				t.Errorf("%v: %d bytes, truly %d", o.Key, got, want)
			}
			checked[fmt.Sprint(o.Key, o.Point.ResourceVersion())] = true
		}
		if t.Failed() {
			t.Fatalf("in round %d, with fault %s", round, kind)
		}
		if round > 10 {
			if s.store.Nodes.Get(samplestore.Key{Name: f.Nodes()[0].Name}) == nil {
				t.Fatalf("round %d, with fault %s of the others: no point of the healthy node", round, kind)
			}
		}
	}
	// The test needs enough of them.
	if len(checked) < 1000 {
		t.Errorf("%d points were checked", len(checked))
	}
	t.Logf("%d points were checked", len(checked))
}

// runAt returns the run with a start time.
func runAt(runs []*fleet.Container, start time.Time) *fleet.Container {
	for _, c := range runs {
		// A float64 of seconds is not exact to the millisecond.
		if c.Start.Sub(start).Abs() <= 2*time.Millisecond {
			return c
		}
	}
	return nil
}

func checkRate(t *testing.T, o *samplestore.Object, used float64) {
	t.Helper()
	want := used / o.Point.Window.Seconds() * 1e9
	if got := float64(o.Point.Usages[0].CPU); math.Abs(got-want) > 1+want*1e-6 {
		t.Errorf("%v: %v nanocores in %s until %s, truly %v", o.Key, got, o.Point.Window, o.Point.Time.AsTime(), want)
	}
}
