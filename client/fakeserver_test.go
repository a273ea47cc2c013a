// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"

	"github.com/metricsbackend/metrics-backend-operator/test/pipes"
)

// requestLog records the requests of a fake server.
type requestLog struct {
	began time.Time

	mu  sync.Mutex
	log []string // "15s list v1", of each request
}

func (l *requestLog) record(what, version string) {
	l.set(func() { l.log = append(l.log, fmt.Sprintf("%v %s %s", time.Since(l.began), what, version)) })
}

func (l *requestLog) requests() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.log)
}

// set changes the server's state.
func (l *requestLog) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// at advances the clock to a time after the start.
func (l *requestLog) at(after time.Duration) {
	time.Sleep(after - time.Since(l.began)) // the bubble's time, not the machine's
	synctest.Wait()
}

// fakeServer is a metrics API behind a real HTTP server, on in-memory connections and with the clock of a synctest
// bubble: a test of minutes runs in milliseconds, and the time of each request is exact.
type fakeServer struct {
	t *testing.T
	requestLog

	served map[string]string // version to the verbs of its resources, "get list watch"
	pods   map[string]int64  // name to the time of its newest sample, in seconds
	watch  http.HandlerFunc  // answers watches
	fail   http.HandlerFunc  // if set, answers discovery and lists
}

// run runs a test in a bubble, with a Watcher of pods on w.
func run(t *testing.T, w *fakeServer, options Options, test func(*Watcher[metricsv1.PodMetrics])) {
	t.Helper()
	newWatcher := func(t *testing.T, config *rest.Config, options Options) (*Watcher[metricsv1.PodMetrics], error) {
		w.t, w.began = t, time.Now()
		return Pods(config, "ns", options)
	}
	runOn(t, w, newWatcher, options, test)
}

// runOn runs a test in a bubble, with a Watcher on a server.
func runOn[T any](t *testing.T, handler http.Handler, newWatcher func(*testing.T, *rest.Config, Options) (*Watcher[T], error), options Options, test func(*Watcher[T])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := pipes.New()
		server := &httptest.Server{Listener: network, Config: &http.Server{Handler: handler}}
		server.Start()
		transport := &http.Transport{DialContext: network.Dial}
		if options.Random == nil {
			options.Random = func() float64 { return 0.5 } // which makes jitter none
		}
		watcher, err := newWatcher(t, &rest.Config{Host: server.URL, Transport: transport, QPS: -1}, options)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- watcher.Run(ctx) }()
		synctest.Wait()
		test(watcher)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		transport.CloseIdleConnections()
		server.Close()
	})
}

func (w *fakeServer) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	version, resource, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/metrics.k8s.io/"), "/")
	what := "discover"
	switch {
	case r.URL.Query().Get("watch") == "true":
		what = "watch"
	case resource != "":
		what = "list"
	}
	w.record(what, version)
	w.mu.Lock()
	_, served := w.served[version]
	watch, fail := w.watch, w.fail
	w.mu.Unlock()
	switch {
	case fail != nil && what != "watch":
		fail(rw, r)
	case what == "watch" && served:
		watch(rw, r)
	default:
		w.answer(rw, r)
	}
}

// answer answers discovery and lists.
func (w *fakeServer) answer(rw http.ResponseWriter, r *http.Request) {
	version, resource, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/metrics.k8s.io/"), "/")
	w.mu.Lock()
	verbs, served := w.served[version]
	w.mu.Unlock()
	switch {
	case !served:
		http.NotFound(rw, r)
	case resource == "":
		answer(rw, http.StatusOK, metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: "metrics.k8s.io/" + version,
			APIResources: []metav1.APIResource{{Name: "pods", Namespaced: true, Kind: "PodMetrics", Verbs: strings.Fields(verbs)}},
		})
	default:
		w.answerList(rw, r)
	}
}

func (w *fakeServer) answerList(rw http.ResponseWriter, r *http.Request) {
	version := versionOf(r)
	list := map[string]any{"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/" + version, "metadata": map[string]any{}}
	items := []any{}
	w.mu.Lock()
	for name, at := range w.pods {
		items = append(items, pod(version, name, at))
	}
	w.mu.Unlock()
	list["items"] = items
	answer(rw, http.StatusOK, list)
}

// only returns the requests of one kind.
func (w *fakeServer) only(what string) []string {
	return slices.DeleteFunc(w.requests(), func(r string) bool { return strings.Fields(r)[1] != what })
}

// wantRequests checks all requests so far.
func (w *fakeServer) wantRequests(want ...string) {
	w.t.Helper()
	if diff := gocmp.Diff(want, w.requests()); diff != "" {
		w.t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// wantOnly checks the requests of one kind so far.
func (w *fakeServer) wantOnly(what string, want ...string) {
	w.t.Helper()
	if diff := gocmp.Diff(want, w.only(what)); diff != "" {
		w.t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// moment returns a time after the start.
func (w *fakeServer) moment(after time.Duration) time.Time { return w.began.Add(after) }

// brief returns version, mode and PollingReason.
func brief(w *Watcher[metricsv1.PodMetrics]) string {
	s := w.Status()
	out := s.Version + " " + string(s.Mode)
	if s.PollingReason != nil {
		out += ": " + s.PollingReason.Error()
	}
	return out
}

// wantStatus checks version, mode and PollingReason.
func wantStatus(t *testing.T, w *Watcher[metricsv1.PodMetrics], want string) {
	t.Helper()
	if got := brief(w); got != want {
		t.Errorf("status %q, want %q", got, want)
	}
}

func versionOf(r *http.Request) string { return strings.Split(r.URL.Path, "/")[3] }

func pod(version, name string, seconds int64) map[string]any {
	return map[string]any{
		"kind": "PodMetrics", "apiVersion": "metrics.k8s.io/" + version,
		"metadata":  map[string]any{"name": name, "namespace": "ns", "resourceVersion": fmt.Sprint(seconds * 1000)},
		"timestamp": time.Unix(seconds, 0).UTC().Format(time.RFC3339), "window": "15s",
		"containers": []any{map[string]any{"name": "app", "usage": map[string]any{"cpu": fmt.Sprintf("%dm", seconds), "memory": "1Mi"}}},
	}
}

func answer(rw http.ResponseWriter, code int, body any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(code)
	_ = json.NewEncoder(rw).Encode(body)
}

func refuse(code int) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		answer(rw, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status: metav1.StatusFailure, Code: int32(code), Message: "no"})
	}
}

// listsOnly serves discovery, without the verb watch, and passes lists on.
func listsOnly(lists http.HandlerFunc) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/pods") {
			lists(rw, r)
			return
		}
		answer(rw, 200, map[string]any{"kind": "APIResourceList", "apiVersion": "v1",
			"resources": []any{map[string]any{"name": "pods", "verbs": []string{"list"}}}})
	}
}

func send(rw http.ResponseWriter, kind string, object any) {
	_ = json.NewEncoder(rw).Encode(map[string]any{"type": kind, "object": object})
	rw.(http.Flusher).Flush()
}

func bookmark(version string) map[string]any {
	return map[string]any{"kind": "PodMetrics", "apiVersion": "metrics.k8s.io/" + version,
		"metadata": map[string]any{"resourceVersion": "1"}}
}

// stream serves watches like the serving component: all data points at once, a new one of each pod every 15 s, a
// bookmark each minute, and a clean close after lasting.
func (w *fakeServer) stream(lasting time.Duration) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		end := time.NewTimer(lasting)
		tick := time.NewTicker(15 * time.Second)
		defer tick.Stop()
		for n := 0; ; n++ {
			w.mu.Lock()
			points := map[string]int64{}
			for name := range w.pods {
				if n > 0 {
					w.pods[name] += 15
				}
				points[name] = w.pods[name]
			}
			w.mu.Unlock()
			for name, at := range points {
				send(rw, "ADDED", pod(versionOf(r), name, at))
			}
			if n%4 == 3 {
				send(rw, "BOOKMARK", bookmark(versionOf(r)))
			}
			select {
			case <-r.Context().Done():
				return
			case <-end.C:
				send(rw, "BOOKMARK", bookmark(versionOf(r)))
				return
			case <-tick.C:
			}
		}
	}
}

// held returns the snapshot as name=cpu.
func held(w *Watcher[metricsv1.PodMetrics]) string {
	var out []string
	for _, p := range w.Snapshot() {
		out = append(out, fmt.Sprintf("%s=%v", p.Name, p.Containers[0].Usage.Cpu()))
	}
	return cmp.Or(strings.Join(out, " "), "nothing")
}

// wantHeld checks the snapshot.
func wantHeld(t *testing.T, w *Watcher[metricsv1.PodMetrics], want string) {
	t.Helper()
	if got := held(w); got != want {
		t.Errorf("held: %s, want %s", got, want)
	}
}
