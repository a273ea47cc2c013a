// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package debounce

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

func TestTracker(t *testing.T) {
	c := testingclock.NewFakePassiveClock(time.Unix(1_000, 0))
	tracker := New[string](c)
	check := func(what string, got, want Streak) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %+v, want %+v", what, got, want)
		}
	}
	check("never observed", tracker.Get("a"), Streak{})
	check("first", tracker.Set("a", true), Streak{Count: 1})
	c.SetTime(c.Now().Add(time.Minute))
	check("second", tracker.Set("a", true), Streak{Elapsed: time.Minute, Count: 2})
	c.SetTime(c.Now().Add(time.Minute))
	check("read", tracker.Get("a"), Streak{Elapsed: 2 * time.Minute, Count: 2})
	check("another key", tracker.Set("b", true), Streak{Count: 1})
	check("interrupted", tracker.Set("a", false), Streak{})
	check("starts over", tracker.Set("a", true), Streak{Count: 1})
	tracker.ResetFunc(func(key string) bool { return key == "b" })
	check("matched", tracker.Get("b"), Streak{})
	check("not matched", tracker.Get("a"), Streak{Count: 1})
	tracker.Reset("a")
	check("reset", tracker.Get("a"), Streak{})
}
