// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowLookups: matchers whose lookups take long, or hang, stop no others, of which nothing
// was known before either.
func TestSlowLookups(t *testing.T) {
	tests := map[string]struct {
		slow int
		// how their lookups end, a minute later.
		how error
		// after is when the other is wanted, and within how soon it has to be known.
		after, within time.Duration
	}{
		"two that are new":                   {slow: 2, after: 0, within: 5 * time.Second},
		"two that are known to take long":    {slow: 2, after: 5*time.Minute + time.Second, within: 0},
		"two that are known to fail":         {slow: 2, how: errors.New("timeout"), after: time.Hour, within: 0},
		"ten that are known to take long":    {slow: 10, after: time.Hour, within: 0},
		"ten of which each was looked for":   {slow: 10, after: 3 * time.Minute, within: 5 * time.Second},
		"ten that are under way just before": {slow: 10, after: time.Hour + time.Minute, within: 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, s *server, d *Discovery, _ func() []string) {
				var slow []string
				for i := range tc.slow {
					m := fmt.Sprint("slow", i)
					slow = append(slow, m)
					s.takes[m] = time.Minute
					s.fail(m, tc.how)
				}
				d.SetMatchers(slow)
				time.Sleep(tc.after)
				synctest.Wait()
				s.has("quick", "q", time.Since(s.begin))
				d.SetMatchers(append(slow, "quick"))
				time.Sleep(tc.within)
				synctest.Wait()
				if got := names(d.Found("quick")); !slices.Equal(got, []string{"q"}) {
					t.Errorf("series %v after %s", got, tc.within)
				}
			})
		})
	}
}

// TestLimiter: never more than both bounds together, however many there are.
func TestLimiter(t *testing.T) {
	run(t, func(t *testing.T, s *server, d *Discovery, _ func() []string) {
		var all []string
		for i := range 40 {
			m := fmt.Sprint("m", i)
			all = append(all, m)
			s.takes[m] = []time.Duration{0, time.Second, 7 * time.Second, time.Minute}[i%4]
		}
		d.SetMatchers(all)
		time.Sleep(time.Hour)
		lookups := s.lookups()
		for _, at := range lookups {
			underway := 0
			for _, l := range lookups {
				if l.At <= at.At && at.At < l.At+s.takes[l.Matcher] {
					underway++
				}
			}
			if underway > maxFast+maxSlow {
				t.Fatalf("%d lookups under way at %s", underway, at.At)
			}
		}
		for _, m := range all {
			if d.Found(m).Time.IsZero() {
				t.Errorf("%s was never looked for", m)
			}
		}
	})
}
