// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

func TestTimeoutGate(t *testing.T) {
	c := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	failing := errors.New("no answer")
	var err error
	g := &timeoutGate{name: "sources", check: func() error { return err }, clock: c, timeout: 30 * time.Second, subject: "sources", fallback: "without"}
	steps := []struct {
		after time.Duration
		err   error
		want  string
	}{
		{0, failing, "waiting for sources: no answer (goes on without after 30s)"},
		{10 * time.Second, nil, ""},
		{10 * time.Second, failing, "waiting for sources: no answer (goes on without after 30s)"},
		{10 * time.Second, failing, ""},
		// It stays open after its timeout: other gates may take longer.
		{time.Second, failing, ""},
	}
	for i, step := range steps {
		c.SetTime(c.Now().Add(step.after))
		err = step.err
		got := ""
		if err := g.Check(t.Context()); err != nil {
			got = err.Error()
		}
		if got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}

// TestTimeoutGates: what each of them waits for, and how long.
func TestTimeoutGates(t *testing.T) {
	unread := func() error { return errors.New("Unavailable") }
	defaults := 0
	for want, test := range map[string]struct {
		timeout time.Duration
		gate    func(clock.PassiveClock) Gate
	}{
		"waiting for rates: 1 of 2 nodes (goes on without after 1m30s)": {90 * time.Second, func(c clock.PassiveClock) Gate {
			return NewRatesGate(rates(false, "1 of 2 nodes"), c, 90*time.Second)
		}},
		"waiting for the MetricsBackend: Unavailable (goes on with the default settings after 30s)": {30 * time.Second, func(c clock.PassiveClock) Gate {
			return NewBackendGate(unread, func(context.Context) { defaults++ }, c)
		}},
		"waiting for what is declared beside the MetricsBackend: Unavailable (goes on without after 30s)": {30 * time.Second, func(c clock.PassiveClock) Gate {
			return NewDeclaredGate(unread, c)
		}},
	} {
		c := testingclock.NewFakePassiveClock(time.Unix(0, 0))
		g := test.gate(c)
		if err := g.Check(t.Context()); err == nil || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
		c.SetTime(c.Now().Add(test.timeout))
		for range 2 {
			if err := g.Check(t.Context()); err != nil {
				t.Errorf("in the end: %v", err)
			}
		}
	}
	if defaults != 1 {
		t.Errorf("the default settings were applied %d times", defaults)
	}
	if err := NewRatesGate(rates(true, ""), clock.RealClock{}, time.Hour).Check(t.Context()); err != nil {
		t.Errorf("with rates: %v", err)
	}
}
