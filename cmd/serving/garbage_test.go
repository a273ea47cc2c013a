// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime/debug"
	"testing"
)

func TestLowerGCPercent(t *testing.T) {
	const before = 100
	for name, tc := range map[string]struct {
		env  map[string]string
		want int
	}{
		"not set":        {want: gcPercent},
		"empty":          {env: map[string]string{"GOGC": ""}, want: gcPercent},
		"set":            {env: map[string]string{"GOGC": "100"}, want: before},
		"off":            {env: map[string]string{"GOGC": "off"}, want: before},
		"a memory limit": {env: map[string]string{"GOMEMLIMIT": "1GiB"}, want: gcPercent},
	} {
		t.Run(name, func(t *testing.T) {
			original := debug.SetGCPercent(before)
			t.Cleanup(func() { debug.SetGCPercent(original) })
			lowerGCPercent(func(key string) string { return tc.env[key] })
			if got := debug.SetGCPercent(before); got != tc.want {
				t.Errorf("GC percent %d, want %d", got, tc.want)
			}
		})
	}
}
