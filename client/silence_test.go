// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
)

func silent(rw http.ResponseWriter, r *http.Request) {
	rw.(http.Flusher).Flush()
	<-r.Context().Done()
}

// after answers the first watches with one handler, and all later ones with another.
func after(n int, first, later http.HandlerFunc) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if n--; n >= 0 {
			first(rw, r)
			return
		}
		later(rw, r)
	}
}

// The other end is gone without a FIN: its objects must not grow too old before there is another watch.
func TestHalfOpen(t *testing.T) {
	for name, watch := range map[string]http.HandlerFunc{
		"after some events": func(rw http.ResponseWriter, r *http.Request) {
			send(rw, "ADDED", pod("v1", "a", 10))
			<-r.Context().Done()
		},
		"before any event":   silent,
		"before the headers": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{served: map[string]string{"v1": both}, pods: map[string]int64{"a": 10}}
			w.watch = after(1, watch, w.stream(time.Hour))
			run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
				w.at(89 * time.Second)
				want := []string{"0s discover v1", "0s list v1", "0s watch v1", "1m4s watch v1"}
				if diff := cmp.Diff(want, w.requests()); diff != "" {
					t.Error(diff)
				}
				w.at(91 * time.Second)
				if got := held(watcher); got != "a=25m" {
					t.Errorf("held: %s", got)
				}
				if got := brief(watcher); got != "v1 Watching" {
					t.Errorf("status %s", got)
				}
			})
		})
	}
}

// A selection of no objects is silent but for bookmarks, and nothing of it grows old.
func TestSilenceWithoutObjects(t *testing.T) {
	w := &world{served: map[string]string{"v1": both}, watch: silent}
	run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
		w.at(260 * time.Second)
		want := []string{"0s discover v1", "0s list v1", "0s watch v1", "2m7s watch v1", "4m14s watch v1"}
		if diff := cmp.Diff(want, w.requests()); diff != "" {
			t.Error(diff)
		}
		if got := brief(watcher); got != "v1 Watching" {
			t.Errorf("status %s", got)
		}
	})
	w = &world{served: map[string]string{"v1": both}, watch: w.stream(time.Hour)} // bookmarks each minute
	run(t, w, Options{}, func(*Watcher[metricsv1.PodMetrics]) {
		w.at(10 * time.Minute)
		want := []string{"0s discover v1", "0s list v1", "0s watch v1"}
		if diff := cmp.Diff(want, w.requests()); diff != "" {
			t.Error(diff)
		}
	})
}

// The watch is not to blame where there is no data at all: lists look for it, and then there is a watch again.
func TestDataStops(t *testing.T) {
	w := &world{served: map[string]string{"v1": both}, pods: map[string]int64{"a": 10}}
	w.watch = after(1, func(rw http.ResponseWriter, r *http.Request) {
		w.set(func() { w.pods["a"] = 11 })
		send(rw, "ADDED", pod("v1", "a", 11))
		for r.Context().Err() == nil { // the server is alive, and has nothing to tell
			send(rw, "BOOKMARK", bookmark("v1"))
			time.Sleep(30 * time.Second)
		}
	}, w.stream(time.Hour))
	run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
		w.at(95 * time.Second)
		if got, want := brief(watcher), "v1 Polling: "+errDoubted.Error(); got != want {
			t.Errorf("status %s, want %s", got, want)
		}
		w.at(130 * time.Second) // of polls that bring nothing
		w.set(func() { w.pods["a"] = 140 })
		w.at(140 * time.Second)
		if got := brief(watcher); got != "v1 Watching" {
			t.Errorf("status %s", got)
		}
		if got := held(watcher); got != "a=140m" {
			t.Errorf("held: %s", got)
		}
	})
}

// v1's pods go away while it is watched: v1beta1, which answers, is taken at once and not after a minute of trouble.
func TestWatchedVersionBecomesUnavailable(t *testing.T) {
	w := &world{served: map[string]string{"v1": both, "v1beta1": both}, pods: map[string]int64{"a": 10}}
	unavailable := refuse(503)
	w.watch = w.stream(time.Minute)
	run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
		w.set(func() {
			stream := w.watch
			w.watch = func(rw http.ResponseWriter, r *http.Request) {
				if versionOf(r) == "v1" {
					unavailable(rw, r)
					return
				}
				stream(rw, r)
			}
			w.fail = func(rw http.ResponseWriter, r *http.Request) {
				if versionOf(r) == "v1" {
					unavailable(rw, r)
					return
				}
				w.answer(rw, r)
			}
		})
		w.at(63 * time.Second)
		if got := brief(watcher); got != "v1beta1 Watching" {
			t.Errorf("status %s", got)
		}
		late := slices.DeleteFunc(w.requests(), func(r string) bool { return strings.HasPrefix(r, "0s ") })
		want := []string{"1m1s watch v1", "1m2s discover v1", "1m2s discover v1beta1", "1m2s list v1beta1", "1m2s watch v1beta1"}
		if diff := cmp.Diff(want, late); diff != "" {
			t.Error(diff)
		}
	})
}
