// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

func TestPatientGate(t *testing.T) {
	c := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	failing := errors.New("no answer")
	var err error
	g := &patientGate{name: "sources", check: func() error { return err }, clock: c, timeout: 30 * time.Second, subject: "sources", without: "without"}
	steps := []struct {
		after time.Duration
		err   error
		want  string
	}{
		{0, failing, "waiting for sources: no answer (goes on without after 30s)"},
		{10 * time.Second, nil, ""},
		{10 * time.Second, failing, "waiting for sources: no answer (goes on without after 30s)"},
		{10 * time.Second, failing, ""},
		// It gave up for good: other gates may take longer.
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
