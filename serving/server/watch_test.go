// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// TestDrain waits for endpoints to be forgotten, and leaves time for what was
// written to be read.
func TestDrain(t *testing.T) {
	tests := map[string]struct {
		delay          time.Duration
		tooEarly, then time.Duration
		over           time.Duration
	}{
		"as deployed":   {delay: 16 * time.Second, tooEarly: 3 * time.Second, then: time.Second, over: 8 * time.Second},
		"without delay": {},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shuttingDown, ended := make(chan struct{}), make(chan time.Duration, 1)
				d := &drain{
					shuttingDown: shuttingDown, delay: tc.delay, clock: clock.RealClock{},
					open: func() int { return 1 }, end: func(over time.Duration) { ended <- over },
				}
				go d.run(t.Context())
				time.Sleep(time.Hour)
				synctest.Wait()
				if len(ended) > 0 {
					t.Fatal("watches ended before the shutdown began")
				}
				close(shuttingDown)
				if tc.tooEarly > 0 {
					time.Sleep(tc.tooEarly)
					synctest.Wait()
					if len(ended) > 0 {
						t.Fatalf("watches ended %s after the shutdown began", tc.tooEarly)
					}
				}
				time.Sleep(tc.then)
				synctest.Wait()
				select {
				case over := <-ended:
					if over != tc.over {
						t.Errorf("watches end over %s, want %s", over, tc.over)
					}
				default:
					t.Errorf("no watch has ended %s after the shutdown began", tc.tooEarly+tc.then)
				}
			})
		})
	}
}

// TestDrainEndsWithTheProcess: nothing is left waiting.
func TestDrainEndsWithTheProcess(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	end := func(time.Duration) { t.Error("watches ended without a shutdown") }
	(&drain{clock: clock.RealClock{}, end: end}).run(ctx)
	began := make(chan struct{})
	close(began)
	(&drain{shuttingDown: began, delay: time.Hour, clock: clock.RealClock{}, end: func(time.Duration) {}}).run(ctx)
}
