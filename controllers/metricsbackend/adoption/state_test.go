// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

var start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// TestPauses checks how long nothing is taken over, from start.
func TestPauses(t *testing.T) {
	t.Parallel()
	reverted := lifecycle.Pause{Reason: "AdoptionReverted", Message: "reverted"}
	unreachable := lifecycle.Pause{Reason: "PodsUnreachable", Message: "unreachable"}
	for name, tc := range map[string]struct {
		happen func(*State)
		want   time.Duration
	}{
		"nothing":                        {func(*State) {}, 0},
		"one failure":                    {func(s *State) { s.Fail(start, reverted) }, 10 * time.Minute},
		"two versions of one API":        {func(s *State) { s.Fail(start, reverted); s.Fail(start, reverted) }, 10 * time.Minute},
		"the second one two seconds on":  {func(s *State) { s.Fail(start.Add(-2*time.Second), reverted); s.Fail(start, reverted) }, 10*time.Minute - 2*time.Second},
		"a second failure":               {func(s *State) { s.Fail(start.Add(-10*time.Minute), reverted); s.Fail(start, reverted) }, 20 * time.Minute},
		"reverted while another waits":   {func(s *State) { s.pause(start, readyzPause, unreachable); s.Fail(start, reverted) }, 10 * time.Minute},
		"an operator that starts again":  {restart(reverted), 7 * time.Minute},
		"the same after a canary failed": {restart(unreachable), 7 * time.Minute},
		"the same after /readyz failed": {func(s *State) {
			var before State
			before.pause(start, readyzPause, unreachable)
			s.Follow(1, before.Paused(start), start)
		}, 0},
		"the spec changed meanwhile": {func(s *State) { restart(reverted)(s); s.Follow(2, lifecycle.Pause{}, start) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s State
			tc.happen(&s)
			if diff := cmp.Diff(tc.want, s.Paused(start).Left); diff != "" {
				t.Errorf("paused for (-want +got):\n%s", diff)
			}
		})
	}
}

// restart follows a failure of three minutes ago that another process reported.
func restart(why lifecycle.Pause) func(*State) {
	return func(s *State) {
		var before State
		before.Fail(start.Add(-3*time.Minute), why)
		s.Follow(1, before.Paused(start), start)
	}
}
