// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// fakeGate is open when err is nil.
type fakeGate struct {
	name  string
	err   error
	tries int
}

func (g *fakeGate) Name() string { return g.name }

func (g *fakeGate) Check(context.Context) error {
	g.tries++
	return g.err
}

// gateStates returns what /readyz tells of each gate; "" for open.
func gateStates(r *firstReadiness) map[string]string {
	states := map[string]string{}
	for _, check := range r.checks() {
		states[check.Name()] = ""
		if err := check.Check(nil); err != nil {
			states[check.Name()] = err.Error()
		}
	}
	return states
}

func TestFirstReadiness(t *testing.T) {
	errA, errB := errors.New("waiting for a thing"), errors.New("waiting for another thing")
	type step struct {
		a, b error
		want map[string]string
		// wantTriesOfB counts how often the second gate was tried in all.
		wantTriesOfB int
	}
	open := map[string]string{"a": "", "b": ""}
	tests := map[string][]step{
		"open at once": {{want: open, wantTriesOfB: 1}},
		"a gate is tried only when those before it are open": {
			{a: errA, want: map[string]string{"a": errA.Error(), "b": "waiting for a"}},
			{b: errB, want: map[string]string{"a": "", "b": errB.Error()}, wantTriesOfB: 1},
			{want: open, wantTriesOfB: 2},
		},
		"both must be open at the same time": {
			{b: errB, want: map[string]string{"a": "", "b": errB.Error()}, wantTriesOfB: 1},
			{a: errA, want: map[string]string{"a": errA.Error(), "b": "waiting for a"}, wantTriesOfB: 1},
			{want: open, wantTriesOfB: 2},
		},
		"it never closes again": {
			{want: open, wantTriesOfB: 1},
			{a: errA, b: errB, want: open, wantTriesOfB: 1},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			a, b := &fakeGate{name: "a"}, &fakeGate{name: "b"}
			r := newFirstReadiness(clock.RealClock{}, a, b)
			if diff := cmp.Diff(map[string]string{"a": "not tried yet", "b": "not tried yet"}, gateStates(r)); diff != "" {
				t.Errorf("before the first try (-want +got):\n%s", diff)
			}
			for i, s := range steps {
				a.err, b.err = s.a, s.b
				if !r.ready() {
					r.try(t.Context())
				}
				if diff := cmp.Diff(s.want, gateStates(r)); diff != "" {
					t.Errorf("step %d (-want +got):\n%s", i, diff)
				}
				if b.tries != s.wantTriesOfB {
					t.Errorf("step %d: the second gate was tried %d times, want %d", i, b.tries, s.wantTriesOfB)
				}
			}
		})
	}
}

func TestFirstReadinessEndsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRatesGate(fakePrimer{false, "no samples"}, clock.RealClock{}, 30*time.Second)
		r := newFirstReadiness(clock.RealClock{}, g)
		began := time.Now()
		r.run(t.Context())
		if took := time.Since(began); took < 30*time.Second || took > 30*time.Second+2*gatePeriod {
			t.Errorf("ready after %s, want just after the 30s that the gate waits", took)
		}
		if !r.ready() {
			t.Error("not ready")
		}
	})
}

func TestFirstReadinessStopsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFirstReadiness(clock.RealClock{}, &fakeGate{name: "a", err: errors.New("never")})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r.run(ctx)
		if r.ready() {
			t.Error("ready although its gate is closed")
		}
	})
}

type fakePrimer struct {
	primed bool
	reason string
}

func (f fakePrimer) Primed() (bool, string) { return f.primed, f.reason }

func TestSyncGate(t *testing.T) {
	synced := func(b bool) cache.InformerSynced { return func() bool { return b } }
	tests := map[string]struct {
		nodes, pods bool
		wantErr     string
	}{
		"neither": {wantErr: "waiting for the list of pods from kube-apiserver: it must be reachable, and this account needs list and watch on pods"},
		"pods":    {pods: true, wantErr: "waiting for the list of nodes from kube-apiserver: it must be reachable, and this account needs list and watch on nodes"},
		"both":    {nodes: true, pods: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := (syncGate{{resource: "pods", handled: synced(tc.pods)}, {resource: "nodes", handled: synced(tc.nodes)}}).Check(t.Context()); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.wantErr, got); diff != "" {
				t.Errorf("gate (-want +got):\n%s", diff)
			}
		})
	}
}
