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

func neverOpens(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// If the connection dies without a FIN, a list and another watch follow before objects expire.
func TestHalfOpen(t *testing.T) {
	w := &fakeServer{served: map[string]string{"v1": both}, pods: map[string]int64{"a": 10}}
	w.watch = after(1, func(rw http.ResponseWriter, r *http.Request) {
		send(rw, "ADDED", pod("v1", "a", 10))
		<-r.Context().Done()
	}, w.stream(time.Hour))
	run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
		w.at(89 * time.Second)
		w.wantRequests("0s discover v1", "0s list v1", "0s watch v1", "1m1s list v1", "1m1s watch v1")
		w.at(95 * time.Second)
		wantHeld(t, watcher, "a=40m")
		wantStatus(t, watcher, "v1 Watching")
	})
}

// A watch of no objects continues, while lists check that it misses none.
func TestSilenceWithoutObjects(t *testing.T) {
	for name, c := range map[string]struct {
		watch   func(*fakeServer) http.HandlerFunc
		watches []string
	}{
		"silent":                {func(*fakeServer) http.HandlerFunc { return silent }, []string{"0s watch v1", "2m1s watch v1", "4m2s watch v1"}},
		"bookmarks each minute": {func(w *fakeServer) http.HandlerFunc { return w.stream(time.Hour) }, []string{"0s watch v1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &fakeServer{served: map[string]string{"v1": both}}
			w.watch = c.watch(w)
			run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
				w.at(250 * time.Second)
				w.wantOnly("watch", c.watches...)
				if got := len(w.only("list")); got != 250/15+1 {
					t.Errorf("%d lists", got)
				}
				w.set(func() { w.pods = map[string]int64{"a": 250} })
				w.at(266 * time.Second)
				if got := held(watcher); !strings.HasPrefix(got, "a=") {
					t.Errorf("held: %s", got)
				}
			})
		})
	}
}

// A watch that delivers nothing because there is no data is kept. If a list finds data, the watch may still deliver it
// before the next list.
func TestDataStops(t *testing.T) {
	w := &fakeServer{served: map[string]string{"v1": both}, pods: map[string]int64{"a": 10}}
	w.watch = after(1, func(rw http.ResponseWriter, r *http.Request) {
		w.set(func() { w.pods["a"] = 11 })
		send(rw, "ADDED", pod("v1", "a", 11))
		for r.Context().Err() == nil { // the server is alive, and has nothing to tell
			time.Sleep(30 * time.Second)
			send(rw, "BOOKMARK", bookmark("v1"))
		}
	}, w.stream(time.Hour))
	run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
		w.at(125 * time.Second) // of polls that bring nothing
		wantStatus(t, watcher, "v1 Polling: "+errNoData.Error())
		// Neither bookmarks nor lists with the old data point renew an object.
		wantHeld(t, watcher, "nothing")
		w.wantOnly("watch", "0s watch v1")
		w.set(func() { w.pods["a"] = 130 })
		w.at(140 * time.Second)
		wantHeld(t, watcher, "a=130m")
		w.set(func() { w.pods["a"] = 145 })
		w.at(155 * time.Second)
		wantStatus(t, watcher, "v1 Watching")
	})
}

// A workload is scaled to zero and back, on a server with rare bookmarks: the watch delivers the new pod at once.
func TestScaledToZero(t *testing.T) {
	w := &fakeServer{served: map[string]string{"v1": both}, pods: map[string]int64{"a": 10}}
	w.watch = func(rw http.ResponseWriter, r *http.Request) {
		for n := 0; r.Context().Err() == nil; n++ {
			w.set(func() {
				for name := range w.pods {
					w.pods[name] += 15
					send(rw, "ADDED", pod("v1", name, w.pods[name]))
				}
			})
			if n%20 == 0 {
				send(rw, "BOOKMARK", bookmark("v1"))
			}
			time.Sleep(15 * time.Second)
		}
	}
	run(t, w, Options{MaxAge: 45 * time.Second}, func(watcher *Watcher[metricsv1.PodMetrics]) {
		w.at(140 * time.Second)
		w.set(func() { w.pods = nil })
		w.at(10 * time.Minute)
		wantHeld(t, watcher, "nothing")
		w.set(func() { w.pods = map[string]int64{"b": 600} })
		w.at(10*time.Minute + 31*time.Second)
		wantStatus(t, watcher, "v1 Watching")
	})
}

// If v1's pods go away during a watch, the Watcher switches to v1beta1 at once, not after a minute of retries.
func TestWatchedVersionBecomesUnavailable(t *testing.T) {
	w := &fakeServer{served: map[string]string{"v1": both, "v1beta1": both}, pods: map[string]int64{"a": 10}}
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
		wantStatus(t, watcher, "v1beta1 Watching")
		late := slices.DeleteFunc(w.requests(), func(r string) bool { return strings.HasPrefix(r, "0s ") })
		want := []string{"1m1s watch v1", "1m2s discover v1", "1m2s discover v1beta1", "1m2s list v1beta1", "1m2s watch v1beta1"}
		if diff := cmp.Diff(want, late); diff != "" {
			t.Error(diff)
		}
	})
}
