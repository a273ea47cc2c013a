// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rungroup

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// TestGroup: functions run from when Run is called, or they are added, until they are stopped
// or Run's context ends.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		var mu sync.Mutex
		running := map[string]bool{}
		set := func(name string, runs bool) {
			mu.Lock()
			defer mu.Unlock()
			running[name] = runs
		}
		add := func(name string) func() {
			return g.Go(func(ctx context.Context) {
				set(name, true)
				<-ctx.Done()
				set(name, false)
			})
		}
		check := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			var got []string
			for name, runs := range running {
				if runs {
					got = append(got, name)
				}
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%s %v run, want %v", when, got, want)
			}
		}
		stopFirst, stopNever := add("first"), add("never")
		stopNever()
		check("before Run")
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { g.Run(ctx) })
		check("in Run", "first")
		add("second")
		check("in Run", "first", "second")
		stopFirst()
		stopFirst()
		check("after a stop", "second")
		cancel()
		run.Wait()
		check("after Run")
		add("late")
		check("after Run")
		if len(running) != 2 {
			t.Errorf("%v were started, want first and second", running)
		}
	})
}
