// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"testing"
	"time"
)

func TestWindowSeconds(t *testing.T) {
	for window, want := range map[time.Duration]int64{
		0: 0, time.Millisecond: 1, 500 * time.Millisecond: 1, time.Second: 1, 1500 * time.Millisecond: 2, 5 * time.Minute: 300,
	} {
		if got := *WindowSeconds(window); got != want {
			t.Errorf("%v is %d s, want %d", window, got, want)
		}
	}
}
