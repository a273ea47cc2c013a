// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// requestOf returns a scrape without a connection.
func requestOf(ctx context.Context) *http.Request {
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, metricsPath, nil)
	request.Header.Set("Authorization", "Bearer a-token")
	return request
}

func TestAnswersTakeTime(t *testing.T) {
	lognormal := Latency{Median: 20 * time.Millisecond, P99: time.Second}
	for name, tc := range map[string]struct {
		latency Latency
		fault   Fault
		// want is the time until the first two answers.
		want []time.Duration
	}{
		"at once":             {want: []time.Duration{0, 0}},
		"always the same":     {latency: Latency{Median: time.Second, P99: time.Second}, want: []time.Duration{time.Second, time.Second}},
		"slow":                {fault: Fault{Kind: Slow, After: 5 * time.Second}, want: []time.Duration{5 * time.Second, 5 * time.Second}},
		"slow with a latency": {latency: lognormal, fault: Fault{Kind: Slow, After: 5 * time.Second}, want: []time.Duration{5 * time.Second, 5 * time.Second}},
		"a refusal has none":  {latency: lognormal, fault: Fault{Kind: InternalError}, want: []time.Duration{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, err := New(Options{PodsPerNode: 1, Latency: tc.latency})
				if err != nil {
					t.Fatal(err)
				}
				if err := f.SetFault(tc.fault); err != nil {
					t.Fatal(err)
				}
				var got []time.Duration
				for range tc.want {
					began := time.Now()
					f.answer(f.Nodes()[0], httptest.NewRecorder(), requestOf(t.Context()))
					// A lognormal distribution of equal durations is exact but for rounding.
					got = append(got, time.Since(began).Round(time.Microsecond))
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("time until the answers (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestLatencyIsLognormal(t *testing.T) {
	latency := Latency{Median: 20 * time.Millisecond, P99: time.Second}
	draw := func(seed uint64) []time.Duration {
		f, _ := newFleet(t, Options{Nodes: 10, PodsPerNode: 1, Seed: seed, Latency: latency})
		var all []time.Duration
		for _, n := range f.Nodes() {
			for range 1000 {
				all = append(all, f.latency.Load().next(n))
			}
		}
		return all
	}
	all := draw(1)
	if diff := cmp.Diff(all, draw(1)); diff != "" {
		t.Errorf("different latencies of one seed:\n%s", diff)
	}
	if slices.Equal(all, draw(2)) {
		t.Error("the same latencies of two seeds")
	}
	slices.Sort(all)
	for name, tc := range map[string]struct{ got, want time.Duration }{
		"median":         {all[len(all)/2], latency.Median},
		"p99":            {all[len(all)*99/100], latency.P99},
		"first per cent": {all[len(all)/100], time.Duration(float64(latency.Median) * float64(latency.Median) / float64(latency.P99))},
	} {
		if tc.got < tc.want*8/10 || tc.got > tc.want*12/10 {
			t.Errorf("%s is %v, want about %v", name, tc.got, tc.want)
		}
	}
}

func TestLatencyIsChecked(t *testing.T) {
	for name, latency := range map[string]Latency{
		"no p99":             {Median: time.Second},
		"no median":          {P99: time.Second},
		"p99 below median":   {Median: time.Second, P99: time.Millisecond},
		"a negative latency": {Median: -time.Second, P99: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(Options{Latency: latency}); err == nil || !strings.Contains(err.Error(), "the median must be positive") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// A hanging kubelet writes nothing, and a request ends when its client leaves.
func TestHangingNeverAnswers(t *testing.T) {
	for name, tc := range map[string]Fault{
		"hanging": {Kind: Hanging},
		"slow":    {Kind: Slow, After: 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, err := New(Options{PodsPerNode: 1})
				if err != nil {
					t.Fatal(err)
				}
				if err := f.SetFault(tc); err != nil {
					t.Fatal(err)
				}
				ctx, leave := context.WithTimeout(t.Context(), time.Hour)
				defer leave()
				began, recorder := time.Now(), httptest.NewRecorder()
				func() {
					defer func() {
						if got := recover(); got != http.ErrAbortHandler {
							t.Errorf("the request ended with %v, not without an answer", got)
						}
					}()
					f.answer(f.Nodes()[0], recorder, requestOf(ctx))
				}()
				if took := time.Since(began); took != time.Hour || recorder.Body.Len() != 0 {
					t.Errorf("ended after %v with %d bytes, want them to wait until the client leaves", took, recorder.Body.Len())
				}
			})
		})
	}
}

func TestHangingEndsWithTheFleet(t *testing.T) {
	for protocol, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(protocol, func(t *testing.T) {
			f, _ := newFleet(t, Options{PodsPerNode: 1})
			fleetContext, stop := context.WithCancel(context.WithoutCancel(t.Context()))
			defer stop()
			if err := f.Start(fleetContext); err != nil {
				t.Fatal(err)
			}
			if err := f.SetFault(Fault{Kind: Hanging}); err != nil {
				t.Fatal(err)
			}
			// The fleet stops once the request is sent.
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { stop() }})
			if a := newClient(t, f, http2).scrape(ctx, f.Nodes()[0]); a.err == nil {
				t.Errorf("a hanging kubelet answered with status %d", a.status)
			}
			f.Wait()
		})
	}
}
