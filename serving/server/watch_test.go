// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

func TestWatchSettings(t *testing.T) {
	defaults := watchSettings{
		enabled: true,
		limits:  stream.Limits{Connections: 10000, PerUser: 1000, OpensPerSecond: 100, OpensBurst: 1000},
		stream:  stream.Settings{BookmarkInterval: time.Minute, MaxAge: time.Hour, StallTimeout: time.Minute},
	}
	tests := map[string]struct {
		spec v1alpha1.WatchSpec
		want func(*watchSettings)
	}{
		"defaults": {},
		"disabled": {
			spec: v1alpha1.WatchSpec{Mode: v1alpha1.WatchDisabled},
			want: func(s *watchSettings) { s.enabled = false },
		},
		"everything set": {
			spec: v1alpha1.WatchSpec{
				Mode: v1alpha1.WatchEnabled, MaxConnections: ptr.To[int32](50), MaxConnectionsPerUser: ptr.To[int32](20),
				MaxOpensPerSecondPerUser: ptr.To[int32](5), BookmarkInterval: duration(10 * time.Second), MaxAge: duration(5 * time.Minute),
			},
			want: func(s *watchSettings) {
				s.limits = stream.Limits{Connections: 50, PerUser: 20, OpensPerSecond: 5, OpensBurst: 20}
				s.stream.BookmarkInterval, s.stream.MaxAge = 10*time.Second, 5*time.Minute
			},
		},
		"a burst is at least what comes in a second": {
			spec: v1alpha1.WatchSpec{MaxConnectionsPerUser: ptr.To[int32](20), MaxOpensPerSecondPerUser: ptr.To[int32](30)},
			want: func(s *watchSettings) { s.limits.PerUser, s.limits.OpensPerSecond, s.limits.OpensBurst = 20, 30, 30 },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			want := defaults
			if tc.want != nil {
				tc.want(&want)
			}
			got, err := settingsFrom(&v1alpha1.MetricsBackendSpec{Watch: tc.spec})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.watch, cmp.AllowUnexported(watchSettings{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

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

// TestWatchDefaults: watches without timeoutSeconds get a time of their own, and
// a connection on which many are multiplexed takes no more than are cheap to write to.
func TestWatchDefaults(t *testing.T) {
	o := parsedOptions(t)
	if o.Run.MinRequestTimeout != 1800 {
		t.Errorf("watches without timeoutSeconds end after %d to twice as many seconds, want 1800", o.Run.MinRequestTimeout)
	}
	if o.SecureServing.HTTP2MaxStreamsPerConnection != 250 {
		t.Errorf("a connection takes %d watches, want 250", o.SecureServing.HTTP2MaxStreamsPerConnection)
	}
	if o.Run.ShutdownWatchTerminationGracePeriod <= 0 {
		t.Error("watches that are left at shutdown are cut off")
	}
}
