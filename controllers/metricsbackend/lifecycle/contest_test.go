// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"
	"time"
)

// Writes are counted by manager and within ContestWindow.
func TestContest(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	c := &Contest{}
	write := func(manager string) bool {
		if !c.mayWrite(manager, now) {
			c.Stop(now)
			return false
		}
		c.Count(manager, now)
		return true
	}
	for range ContestLimit - 1 {
		if !write("one") {
			t.Fatal("refused below the limit")
		}
	}
	now = now.Add(ContestWindow)
	for i := range ContestLimit {
		if !write("one") || i == 0 && !write("other") {
			t.Fatalf("refused write %d in a new window", i)
		}
	}
	if write("one") || write("other") || !c.Paused(now) {
		t.Error("allowed after the contest was lost")
	}
	now = now.Add(ContestWindow)
	if !c.Over(now) || !write("one") || write("one") {
		t.Error("not exactly one write after the pause")
	}
}
