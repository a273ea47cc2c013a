// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
)

const (
	both    = "get list watch"
	noWatch = "get list"
)

func TestWatchesOurs(t *testing.T) {
	w := &fakeServer{served: map[string]string{"v1": both, "v1beta1": both}, pods: map[string]int64{"a": 10, "b": 20}}
	w.watch = w.stream(10 * time.Minute)
	run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
		wantHeld(t, watcher, "a=10m b=20m")
		w.at(16 * time.Second)
		wantHeld(t, watcher, "a=25m b=35m")
		if diff := cmp.Diff(Status{Version: "v1", Mode: Watching, Synced: true, LastContact: w.moment(15 * time.Second)}, watcher.Status()); diff != "" {
			t.Error(diff)
		}
		// One second after a clean close there is another watch. Discovery is due by then, too.
		w.at(602 * time.Second)
		w.wantRequests("0s discover v1", "0s list v1", "0s watch v1", "10m1s discover v1", "10m1s watch v1")
	})
}

func TestPollsMetricsServer(t *testing.T) {
	w := &fakeServer{served: map[string]string{"v1beta1": noWatch}, pods: map[string]int64{"a": 10}}
	run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
		w.set(func() { w.pods = map[string]int64{"a": 25, "b": 25} })
		w.at(16 * time.Second)
		wantHeld(t, watcher, "a=25m b=25m")
		w.set(func() { w.pods = map[string]int64{"b": 40} })
		w.at(31 * time.Second)
		wantHeld(t, watcher, "b=40m") // and not a, which left the list
		wantStatus(t, watcher, "v1beta1 Polling: the server names no watch for pods in metrics.k8s.io/v1beta1")
		if got := watcher.Status(); !got.LastContact.Equal(w.moment(30*time.Second)) || got.Err != nil {
			t.Errorf("status %+v", got)
		}
		w.wantRequests("0s discover v1", "0s discover v1beta1", "0s list v1beta1", "15s list v1beta1", "30s list v1beta1")
	})
}

func TestRefusedWatch(t *testing.T) {
	plain := func(w *fakeServer) http.HandlerFunc { return w.answerList }
	for name, watch := range map[string]func(*fakeServer) http.HandlerFunc{
		"403":        func(*fakeServer) http.HandlerFunc { return refuse(403) },
		"405":        func(*fakeServer) http.HandlerFunc { return refuse(405) },
		"422":        func(*fakeServer) http.HandlerFunc { return refuse(422) },
		"plain list": plain,
		"405 as an event": func(*fakeServer) http.HandlerFunc {
			return func(rw http.ResponseWriter, _ *http.Request) {
				send(rw, "ERROR", map[string]any{"kind": "Status", "code": 405, "message": "watch is disabled"})
			}
		},
		"403 in a 200": func(*fakeServer) http.HandlerFunc {
			return func(rw http.ResponseWriter, _ *http.Request) {
				answer(rw, 200, map[string]any{"kind": "Status", "code": 403, "message": "no"})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &fakeServer{served: map[string]string{"v1": both}, pods: map[string]int64{"a": 10}}
			w.watch = watch(w)
			run(t, w, Options{PollInterval: time.Minute, RetryWatch: 2 * time.Minute, MaxAge: time.Hour},
				func(watcher *Watcher[metricsv1.PodMetrics]) {
					if got := watcher.Status(); got.Mode != Polling || got.Err != nil || got.PollingReason == nil {
						t.Errorf("status %+v", got)
					}
					// After RetryWatch, discovery and the watch are tried again, and the watch is accepted.
					w.set(func() { w.watch = w.stream(time.Hour) })
					w.at(121 * time.Second)
					w.wantRequests("0s discover v1", "0s list v1", "0s watch v1", "1m0s list v1",
						"2m0s discover v1", "2m0s list v1", "2m0s watch v1")
					if got := watcher.Status(); got.Mode != Watching || got.Err != nil {
						t.Errorf("status %+v", got)
					}
				})
		})
	}
}

func TestPlainListIsTaken(t *testing.T) {
	w := &fakeServer{served: map[string]string{"v1": both}, pods: map[string]int64{"a": 10}}
	w.watch = func(rw http.ResponseWriter, r *http.Request) {
		w.set(func() { w.pods = map[string]int64{"b": 11}; w.fail = refuse(500) }) // no list but this one
		w.answerList(rw, r)
	}
	run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
		wantHeld(t, watcher, "b=11m")
	})
}

// The Watcher follows a rollback to an implementation without v1 and watch, and the upgrade back.
func TestFollowsRollbackAndUpgrade(t *testing.T) {
	w := &fakeServer{served: map[string]string{"v1": both, "v1beta1": both}, pods: map[string]int64{"a": 10}}
	w.watch = w.stream(time.Minute)
	run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
		w.set(func() { w.served = map[string]string{"v1beta1": noWatch} })
		w.at(62 * time.Second)
		wantStatus(t, watcher, "v1beta1 Polling: the server names no watch for pods in metrics.k8s.io/v1beta1")
		if got := held(watcher); got == "nothing" {
			t.Error("the rollback emptied the snapshot")
		}
		w.set(func() { w.served = map[string]string{"v1": both, "v1beta1": both} })
		w.at(7 * time.Minute)
		wantStatus(t, watcher, "v1 Watching")
	})
}

// v1 is registered, but its requests hang: v1beta1 must not wait for it.
func TestVersionThatHangs(t *testing.T) {
	w := &fakeServer{served: map[string]string{"v1beta1": both}, pods: map[string]int64{"a": 10}}
	w.watch = w.stream(time.Hour)
	w.fail = func(rw http.ResponseWriter, r *http.Request) {
		if versionOf(r) == "v1" {
			<-r.Context().Done()
			return
		}
		w.answer(rw, r)
	}
	run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
		w.at(11 * time.Second)
		wantStatus(t, watcher, "v1beta1 Watching")
		wantHeld(t, watcher, "a=10m")
	})
}

func TestListAfterStartOver(t *testing.T) {
	w := &fakeServer{served: map[string]string{"v1": both}, pods: map[string]int64{"a": 10, "b": 10}}
	w.watch = func(rw http.ResponseWriter, r *http.Request) {
		send(rw, "ADDED", pod("v1", "a", 25))
		time.Sleep(40 * time.Second)
		w.set(func() { w.pods = map[string]int64{"a": 40}; w.watch = w.stream(time.Hour) })
		send(rw, "ERROR", map[string]any{"kind": "Status", "code": 504, "reason": "Timeout", "message": "start over"})
	}
	run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
		w.at(42 * time.Second)
		wantHeld(t, watcher, "a=40m")
		w.wantRequests("0s discover v1", "0s list v1", "0s watch v1", "41s list v1", "41s watch v1")
	})
}

func TestChanges(t *testing.T) {
	w := &fakeServer{served: map[string]string{"v1": both}, pods: map[string]int64{"a": 10}}
	w.watch = w.stream(time.Hour)
	run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
		first := <-watcher.Changes()
		if first.Type != Updated || first.Object.Name != "a" {
			t.Errorf("first: %+v", first)
		}
		// Not read for two minutes: one change is being sent, and one per pod is pending.
		w.at(121 * time.Second)
		<-watcher.Changes()
		newest := <-watcher.Changes()
		if got := newest.Object.Containers[0].Usage.Cpu().MilliValue(); got != 10+8*15 {
			t.Errorf("newest: %d", got)
		}
		// The pod ends without an event: the list after a minute without data shows it.
		w.set(func() { w.pods = nil })
		last := <-watcher.Changes()
		if last.Type != Dropped || last.Object.Name != "a" {
			t.Errorf("last: %+v", last)
		}
		synctest.Wait()
		wantHeld(t, watcher, "nothing")
		if age := time.Since(w.began); age < 180*time.Second || age > 190*time.Second {
			t.Errorf("dropped after %v, the last data point came after 2m", age)
		}
	})
}

// MODIFIED and DELETED are not in KEP-1013, but have a clear meaning.
func TestOtherEvents(t *testing.T) {
	w := &fakeServer{served: map[string]string{"v1beta1": both}, pods: map[string]int64{"a": 10, "b": 10}}
	w.watch = func(rw http.ResponseWriter, r *http.Request) {
		send(rw, "MODIFIED", pod("v1beta1", "a", 25))
		send(rw, "DELETED", pod("v1beta1", "b", 10))
		<-r.Context().Done()
	}
	run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
		wantHeld(t, watcher, "a=25m")
		if err := watcher.WaitForSync(w.t.Context()); err != nil {
			t.Error(err)
		}
		if err := watcher.Run(w.t.Context()); err == nil {
			t.Error("a second Run is no error")
		}
	})
}

func TestRequestsHaveTheSelectors(t *testing.T) {
	w := &fakeServer{served: map[string]string{"v1": both}}
	var queries []string
	w.watch = func(rw http.ResponseWriter, r *http.Request) {
		w.set(func() { queries = append(queries, r.URL.Query().Encode()) })
		w.stream(time.Hour)(rw, r)
	}
	w.fail = func(rw http.ResponseWriter, r *http.Request) { // discovery and the list
		w.set(func() { queries = append(queries, r.URL.Query().Encode()) })
		w.answer(rw, r)
	}
	options := Options{LabelSelector: "app in (x,y)", FieldSelector: "metadata.name=a"}
	run(t, w, options, func(*Watcher[metricsv1.PodMetrics]) {
		w.set(func() {
			selectors := "fieldSelector=metadata.name%3Da&labelSelector=app+in+%28x%2Cy%29"
			want := []string{"", selectors, "allowWatchBookmarks=true&" + selectors + "&watch=true"}
			if diff := cmp.Diff(want, queries); diff != "" {
				t.Error(diff)
			}
		})
	})
}

func TestPaths(t *testing.T) {
	for namespace, want := range map[string]string{
		"":   "/apis/metrics.k8s.io/v1/pods",
		"ns": "/apis/metrics.k8s.io/v1/namespaces/ns/pods",
	} {
		watcher, err := Pods(&rest.Config{Host: "metrics.example"}, namespace, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := watcher.api.path("v1", true); got != want {
			t.Errorf("path %s, want %s", got, want)
		}
	}
}

func TestWrongConfig(t *testing.T) {
	if _, err := Nodes(&rest.Config{Host: "://"}, Options{}); err == nil {
		t.Error("a host that is none is no error")
	}
	if _, err := Pods(&rest.Config{}, "../x", Options{}); err == nil {
		t.Error("a namespace that is a path is no error")
	}
	if _, err := Nodes(&rest.Config{}, Options{MaxAge: 1}); err == nil {
		t.Error("a wrong option is no error")
	}
}
