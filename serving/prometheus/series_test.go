// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// An answer about series is bounded by time and by bytes of its own; what came of one
// that is beyond them is kept.
func TestLookup(t *testing.T) {
	const one = `{"__name__":"up","pod":"web-1"}`
	begins := `{"status":"success","data":[` + one
	ten := begins + strings.Repeat(","+one, 9999) + "]}"
	tests := map[string]struct {
		handler http.HandlerFunc
		change  func(*settings)
		// least is how many series are visited at least.
		least  int
		cut    bool
		reason query.Reason
	}{
		"far more than maxResponseSize": {
			handler: answers("application/json", ten), least: 10000,
		},
		"without end": {
			handler: drips(begins, ","+one), change: func(s *settings) { s.seriesResponseBytes = 1 << 20 }, least: 10000, cut: true,
		},
		"says that it is too long": {
			handler: status(http.StatusOK, "application/json", ten, "Content-Length", fmt.Sprint(len(ten))),
			change:  func(s *settings) { s.seriesResponseBytes = 100 << 10 }, least: 2000, cut: true,
		},
		"one series without end": {
			handler: drips(`{"status":"success","data":[{"a":"`, "x"), change: func(s *settings) { s.seriesBytes = 64 << 10 }, reason: query.ReasonTooLarge,
		},
		"does not end in time": {
			handler: func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				answers("application/json", begins+",")(w, r)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			},
			change: func(s *settings) { s.seriesTimeout = time.Second }, least: 1, cut: true,
		},
		"does not begin in time": {
			handler: func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
			},
			change: func(s *settings) { s.seriesTimeout = 50 * time.Millisecond }, reason: query.ReasonTimeout,
		},
		"partial": {
			handler: answers("application/json", begins+`],"warnings":["a store is down"]}`), least: 1, reason: query.ReasonPartialResponse,
		},
		"null, which some servers answer for nothing": {handler: answers("application/json", `{"status":"success","data":null}`)},
		"breaks off": {handler: answers("application/json", begins), least: 1, reason: query.ReasonMalformed},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.handler, func(s *v1alpha1.PrometheusSource) { s.MaxResponseSize = "64Ki" })
			if tc.change != nil {
				tc.change(w.source.settings)
			}
			visited := 0
			err := w.source.lookup(t.Context(), "up", instant, instant, func(map[string]string) { visited++ })
			if visited < tc.least || (tc.least == 0 && visited > 0) {
				t.Errorf("%d series were visited, want %d at least", visited, tc.least)
			}
			if errors.Is(err, series.ErrTruncated) != tc.cut {
				t.Errorf("error %v, cut: %v", err, tc.cut)
			}
			switch {
			case tc.reason != "":
				if f := failureIn(t, err); f.Reason != tc.reason {
					t.Errorf("%v, want %s", f, tc.reason)
				}
			case !tc.cut && err != nil:
				t.Error(err)
			}
		})
	}
}
