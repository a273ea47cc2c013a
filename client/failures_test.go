// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
)

type failure struct {
	watch http.HandlerFunc
	err   string // in Status, after the first
}

// failures returns watches that end at once.
func failures() map[string]failure {
	raw := func(body string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(rw, body)
		}
	}
	events := func(kind string, object map[string]any) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) {
			send(rw, kind, object)
			<-r.Context().Done()
		}
	}
	cut := func(rw http.ResponseWriter, _ *http.Request) {
		send(rw, "ADDED", pod("v1", "a", 11))
		_, _ = io.WriteString(rw, `{"type":"ADDED","obj`)
		rw.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	return map[string]failure{
		"closed at once":       {raw(""), "closed the watch"},
		"garbage":              {raw("<html>busy</html>"), "invalid character"},
		"a number":             {raw("17"), "no watch event"},
		"null":                 {raw("null"), `event of type ""`},
		"no event":             {raw(`{"kind":"PodMetrics","metadata":{"name":"a"}}`), `kind "PodMetrics"`},
		"list of another kind": {raw(`{"kind":"PodList","apiVersion":"v1","items":[]}`), "reading the list"},
		"list without names": {raw(`{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1","items":[{}]}`),
			"an object has no name"},
		"type unknown":      {events("SURPRISE", pod("v1", "a", 11)), `type "SURPRISE"`},
		"object of nodes":   {events("ADDED", map[string]any{"kind": "NodeMetrics", "apiVersion": "metrics.k8s.io/v1", "metadata": map[string]any{"name": "a"}}), "NodeMetrics where"},
		"object of core":    {events("ADDED", map[string]any{"kind": "Pod", "apiVersion": "v1"}), "reading an event"},
		"object without":    {events("ADDED", nil), "reading an event"},
		"object nameless":   {events("ADDED", pod("v1", "", 11)), "has no name"},
		"error says nought": {events("ERROR", nil), "says nothing"},
		"error is no map": {func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rw, `{"type":"ERROR","object":3}`)
		}, "no Status"},
		"error of 500": {events("ERROR", map[string]any{"kind": "Status", "code": 500, "message": "oops"}), "oops"},
		"cut within":   {cut, "unexpected EOF"},
		"500":          {refuse(500), "no"},
		"503":          {refuse(503), "no"},
		"429":          {refuse(429), "no"},
		"401":          {refuse(401), "no"},
	}
}

// After every kind of failure the watch is retried with backoff for a minute, then paused for RetryWatch.
func TestFailures(t *testing.T) {
	for name, c := range failures() {
		t.Run(name, func(t *testing.T) {
			w := &fakeServer{served: map[string]string{"v1": both}, pods: map[string]int64{"a": 10}, watch: c.watch}
			run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
				if err := watcher.Status().Err; err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want one with %q", err, c.err)
				}
				w.at(62 * time.Second)
				w.set(func() { w.pods = map[string]int64{"a": 70} })
				w.at(80 * time.Second)
				if got := watcher.Status().Mode; got != Polling {
					t.Errorf("mode %s", got)
				}
				wantHeld(t, watcher, "a=70m")
				w.wantOnly("watch", "0s watch v1", "1s watch v1", "3s watch v1", "7s watch v1", "15s watch v1", "31s watch v1", "1m1s watch v1")
				// After the pause, one failure is enough for the next one.
				w.at(375 * time.Second)
				if watches := w.only("watch"); len(watches) != 8 {
					t.Errorf("watches: %v", watches)
				}
			})
		})
	}
}

// Whatever the failure and the jitter, the snapshot is never older than that of a client that polls.
func TestFailuresCostNoData(t *testing.T) {
	later := func(after time.Duration, watch http.HandlerFunc) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) {
			time.Sleep(after) // the bubble's time
			watch(rw, r)
		}
	}
	all := failures()
	for _, name := range []string{"closed at once", "garbage", "null", "cut within", "500", "503", "429"} {
		all[name+" after 29 s"] = failure{later(29*time.Second, all[name].watch), all[name].err}
		all[name+" after 31 s"] = failure{later(31*time.Second, all[name].watch), all[name].err}
	}
	all["504 after 31 s"] = failure{later(31*time.Second, refuse(504)), "no"}
	all["429 for 59 s"] = failure{tooMany("59"), "too many"}
	all["429 for an hour"] = failure{tooMany("3600"), "too many"}
	all["405"] = failure{refuse(405), "no"}
	all["no headers"] = failure{neverOpens, errSilent.Error()}
	all["no byte"] = failure{silent, errSilent.Error()}
	all["bookmarks alone"] = failure{func(rw http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			send(rw, "BOOKMARK", bookmark("v1"))
			time.Sleep(20 * time.Second)
		}
	}, errStale.Error()}
	for name, c := range all {
		for _, random := range []float64{0, 0.999} {
			t.Run(fmt.Sprintf("%s, jitter %v", name, random), func(t *testing.T) {
				w := &fakeServer{served: map[string]string{"v1": both}, watch: c.watch}
				// Newer than any pod in the watch responses, which have 11 s or less.
				w.pods = map[string]int64{"a": 1000}
				// With less, a watch that takes 31 s would time out as silent.
				options := Options{Random: func() float64 { return random }, MaxAge: 48 * time.Second}
				run(t, w, options, func(watcher *Watcher[metricsv1.PodMetrics]) {
					judgeData(t, w, watcher, c.err)
				})
			})
		}
	}
}

// judgeData checks the snapshot each second for 13 minutes, while the pod has a new data point each second.
func judgeData(t *testing.T, w *fakeServer, watcher *Watcher[metricsv1.PodMetrics], reason string) {
	t.Helper()
	told := false
	for second := range int64(13 * 60) {
		w.set(func() { w.pods["a"] = 1000 + second })
		w.at(time.Duration(second)*time.Second + time.Millisecond)
		snapshot := watcher.Snapshot()
		if len(snapshot) != 1 {
			t.Fatalf("after %d s there are %d objects", second, len(snapshot))
		}
		// 22.5 s is the poll interval with the largest jitter; data points have whole seconds.
		if age := 1000 + second - snapshot[0].Timestamp.Unix(); age > 24 {
			t.Fatalf("after %d s the data point is %d s old, requests %q", second, age, w.requests())
		}
		status := watcher.Status()
		if status.Mode == Starting || status.Version == "" && status.Err == nil && status.PollingReason == nil {
			t.Fatalf("after %d s the status is %+v", second, status)
		}
		for _, err := range []error{status.Err, status.PollingReason} {
			told = told || err != nil && strings.Contains(err.Error(), reason)
		}
	}
	if !told {
		t.Errorf("nowhere in Status: %s", reason)
	}
	for {
		select {
		case change := <-watcher.Changes():
			if change.Type == Dropped {
				t.Fatal("the object was dropped")
			}
			continue
		default:
		}
		return
	}
}

// tooMany answers 429.
func tooMany(after string) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		// Priority and fairness sets the header and a plain text; a server's own limit sends a Status.
		if strings.HasSuffix(r.URL.Path, "/pods") {
			seconds, _ := strconv.Atoi(after)
			status := apierrors.NewTooManyRequests("too many watches", seconds).Status()
			status.Kind, status.APIVersion = "Status", "v1"
			answer(rw, 429, status)
			return
		}
		rw.Header().Set("Retry-After", after)
		http.Error(rw, "Too many requests, please try again later.", http.StatusTooManyRequests)
	}
}

func TestTooManyRequests(t *testing.T) {
	// All rejected clients got the same Retry-After: jitter is added to it.
	for random, second := range map[float64]string{0: "20.5s watch v1", 0.5: "21s watch v1", 0.998: "21.498s watch v1"} {
		t.Run(fmt.Sprintf("Retry-After of a watch is kept, jitter %v", random), func(t *testing.T) {
			w := &fakeServer{served: map[string]string{"v1": both}, watch: tooMany("20")}
			run(t, w, Options{Random: func() float64 { return random }}, func(*Watcher[metricsv1.PodMetrics]) {
				w.at(30 * time.Second)
				w.wantOnly("watch", "0s watch v1", second)
			})
		})
	}
	t.Run("a long Retry-After of a watch means no watch until then", func(t *testing.T) {
		w := &fakeServer{served: map[string]string{"v1": both}, watch: tooMany("600")}
		run(t, w, Options{}, func(*Watcher[metricsv1.PodMetrics]) {
			w.at(631 * time.Second)
			w.wantOnly("watch", "0s watch v1", "10m30s watch v1")
		})
	})
	t.Run("of everything: asked for as often as the server says, at least each five minutes", func(t *testing.T) {
		w := &fakeServer{served: map[string]string{"v1": both}, fail: tooMany("86400")}
		run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
			w.at(302 * time.Second)
			w.wantRequests("0s discover v1", "0s discover v1beta1", "5m1s discover v1", "5m1s discover v1beta1")
			if got := watcher.Status(); got.Mode != Starting || got.Err == nil || got.Synced {
				t.Errorf("status %+v", got)
			}
		})
	})
}

func TestListGoesWrong(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		err    string
	}{
		"garbage":    {func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "<html>") }, "reading the list"},
		"empty":      {func(http.ResponseWriter, *http.Request) {}, "reading the list"},
		"other kind": {func(rw http.ResponseWriter, _ *http.Request) { answer(rw, 200, pod("v1", "a", 1)) }, "where *v1.PodMetricsList"},
		"cut":        {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
		"cut within": {func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rw, `{"kind":"PodMetricsList","items":[`)
			rw.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, "unexpected EOF"},
		"nameless": {func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rw, `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1","items":[{}]}`)
		}, "an object has no name"},
		"503":   {refuse(503), "no"},
		"403":   {refuse(403), "listing /apis/metrics.k8s.io/v1/namespaces/ns/pods"},
		"never": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &fakeServer{served: map[string]string{"v1": noWatch}, pods: map[string]int64{"a": 10}}
			run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
				w.set(func() {
					w.fail = listsOnly(c.answer)
				})
				w.at(46 * time.Second)
				if err := watcher.Status().Err; err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want one with %q", err, c.err)
				}
				wantHeld(t, watcher, "a=10m") // one bad answer takes no snapshot
				w.at(91 * time.Second)
				wantHeld(t, watcher, "nothing") // older than MaxAge
				w.set(func() { w.fail, w.pods = nil, map[string]int64{"a": 100} })
				w.at(3 * time.Minute)
				if got := watcher.Status(); held(watcher) != "a=100m" || got.Err != nil {
					t.Errorf("it does not recover: %+v", got)
				}
			})
		})
	}
}

func TestNothingServed(t *testing.T) {
	w := &fakeServer{}
	run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		defer cancel()
		err := watcher.WaitForSync(ctx)
		if err == nil || !strings.Contains(err.Error(), "is an implementation of it installed?") {
			t.Errorf("error %v", err)
		}
	})
}

// A server that streams one endless value costs no more than maxFrame.
func TestEndlessValue(t *testing.T) {
	w := &fakeServer{served: map[string]string{"v1": both}, pods: map[string]int64{"a": 10}}
	w.watch = func(rw http.ResponseWriter, r *http.Request) {
		filler := strings.Repeat("x", 1<<20)
		_, _ = fmt.Fprint(rw, `{"type":"`)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(rw, filler); err != nil {
				return
			}
		}
	}
	run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
		if err := watcher.Status().Err; err == nil || !strings.Contains(err.Error(), "a value of more than") {
			t.Errorf("error %v", err)
		}
	})
}
