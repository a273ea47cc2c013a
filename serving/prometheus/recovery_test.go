// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const someSeries = `{"status":"success","data":[{"__name__":"up","pod":"a"}]}`

// TestSeriesOfARecoveredSource: what could not be learnt as the whole source was away is
// learnt as soon as it is back, though looks have been backing off for long.
func TestSeriesOfARecoveredSource(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		away := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
		back := func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, pathSeries) {
				answers("application/json", someSeries)(w, r)
				return
			}
			good(w, r)
		}
		b.answers(away)
		time.Sleep(time.Second)
		b.source.Series().SetMatchers([]string{"up"})
		for range 2 {
			time.Sleep(11 * time.Minute)
			b.answers(back)
			time.Sleep(failingProbeInterval + time.Second)
			if found := b.source.Series().Found("up"); found.Err != nil || len(found.Series) != 1 {
				t.Errorf("after the source is back: %+v", found)
			}
			time.Sleep(10 * time.Minute)
			b.answers(away)
		}
	})
}

// TestLookupThatKillsItsServer is not made again at once whenever the server is back.
func TestLookupThatKillsItsServer(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		var looks atomic.Int64
		var dead atomic.Int64
		b.answers(func(w http.ResponseWriter, r *http.Request) {
			now := time.Now().Unix()
			switch {
			case now < dead.Load():
				w.WriteHeader(http.StatusServiceUnavailable)
			case strings.HasSuffix(r.URL.Path, pathSeries):
				looks.Add(1)
				dead.Store(now + 60)
				panic(http.ErrAbortHandler)
			default:
				good(w, r)
			}
		})
		time.Sleep(time.Minute)
		b.source.Series().SetMatchers([]string{"up"})
		time.Sleep(time.Hour)
		if n := looks.Load(); n > 16 { // two in maxRetry, and a few at first
			t.Errorf("the server was killed %d times in an hour", n)
		}
	})
}

// TestSeriesOfAnotherTenant: they are looked for at once, as those of another server are, and as those
// that another parameter selects.
func TestSeriesOfAnotherTenant(t *testing.T) {
	for name, spec := range map[string]v1alpha1.PrometheusSource{
		"header":    {Headers: []v1alpha1.SourceHeader{{Name: "X-Scope-OrgID", Value: "b"}}},
		"parameter": {QueryParameters: []v1alpha1.SourceQueryParameter{{Name: "tenant", Value: "b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				b.answers(func(w http.ResponseWriter, r *http.Request) {
					if strings.HasSuffix(r.URL.Path, pathSeries) {
						answers("application/json", strings.ReplaceAll(someSeries, "up", "up_"+r.Header.Get("X-Scope-OrgID")+r.FormValue("tenant")))(w, r)
						return
					}
					good(w, r)
				})
				b.source.Series().SetMatchers([]string{`{__name__=~"up_.*"}`})
				time.Sleep(2 * time.Minute)
				spec.URL = "http://prometheus.example"
				if err := b.source.Apply(spec); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				found := b.source.Series().Found(`{__name__=~"up_.*"}`)
				if len(found.Series) != 1 || found.Series[0].Name != "up_b" {
					t.Errorf("the series are %+v", found.Series)
				}
			})
		})
	}
}
