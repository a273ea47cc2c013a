// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

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

// gateStates returns the message of each gate in /readyz; "" for an open gate.
func gateStates(r *Gates) map[string]string {
	states := map[string]string{}
	for _, check := range r.HealthChecks() {
		states[check.Name()] = ""
		if err := check.Check(nil); err != nil {
			states[check.Name()] = err.Error()
		}
	}
	return states
}

func TestGates(t *testing.T) {
	errA, errB := errors.New("waiting for a thing"), errors.New("waiting for another thing")
	type step struct {
		a, b error
		want map[string]string
		// wantTriesOfB is the total number of checks of the second gate.
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
			r := NewGates(a, b)
			if diff := cmp.Diff(map[string]string{"a": "not tried yet", "b": "not tried yet"}, gateStates(r)); diff != "" {
				t.Errorf("before the first try (-want +got):\n%s", diff)
			}
			for i, s := range steps {
				a.err, b.err = s.a, s.b
				if !r.passed.Load() {
					r.check(t.Context())
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

func TestRunEndsWhenAllGatesAreOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewRatesGate(rates(false, "no samples"), clock.RealClock{}, 30*time.Second)
		r := NewGates(g)
		began := time.Now()
		r.Run(t.Context())
		if took := time.Since(began); took < 30*time.Second || took > 30*time.Second+2*gatePeriod {
			t.Errorf("ready after %s, want just after the 30s that the gate waits", took)
		}
		if !r.passed.Load() {
			t.Error("not ready")
		}
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewGates(&fakeGate{name: "a", err: errors.New("never")})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r.Run(ctx)
		if r.passed.Load() {
			t.Error("ready although its gate is closed")
		}
	})
}

// rates returns a fixed result of HasRates.
func rates(has bool, reason string) func() (bool, string) {
	return func() (bool, string) { return has, reason }
}
