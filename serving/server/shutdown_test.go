// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// TestDrain: watches end after endpoints have been updated, and early enough for clients
// to read their end.
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

// TestDrainEndsWithTheProcess: it does not wait after its context.
func TestDrainEndsWithTheProcess(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	end := func(time.Duration) { t.Error("watches ended without a shutdown") }
	(&drain{clock: clock.RealClock{}, end: end}).run(ctx)
	began := make(chan struct{})
	close(began)
	(&drain{shuttingDown: began, delay: time.Hour, clock: clock.RealClock{}, end: func(time.Duration) {}}).run(ctx)
}

// TestConnectionClose uses real connections, since it is about their behavior.
func TestConnectionClose(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			shuttingDown := make(chan struct{})
			server := httptest.NewUnstartedServer(withConnectionClose(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, r.RemoteAddr)
			}), shuttingDown))
			server.EnableHTTP2 = http2
			server.StartTLS()
			t.Cleanup(server.Close)
			get := func() string {
				t.Helper()
				answer, err := server.Client().Get(server.URL)
				if err != nil {
					t.Fatalf("get: %v", err)
				}
				defer answer.Body.Close()
				if (answer.ProtoMajor == 2) != http2 {
					t.Fatalf("answered with %s", answer.Proto)
				}
				body, err := io.ReadAll(answer.Body)
				if err != nil {
					t.Fatalf("read: %v", err)
				}
				return string(body)
			}
			first := get()
			if second := get(); second != first {
				t.Fatalf("the connection is not kept: %s, then %s", first, second)
			}
			close(shuttingDown)
			last := get()
			if last != first {
				t.Errorf("the request after shutdown began took another connection: its answer should only announce the close")
			}
			if next := get(); next == last {
				t.Error("the connection is kept although the server is shutting down")
			}
		})
	}
}
