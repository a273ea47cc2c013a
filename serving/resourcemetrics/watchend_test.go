// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// timed is a server whose watches go by a clock of the test's.
type timed struct {
	*httptest.Server
	clock   *clocktesting.FakeClock
	store   *samplestore.Store
	streams *Streams
	group   *Group
	quota   *stream.Quota
}

// serveTimed serves watchedStore.
func serveTimed(t *testing.T, settings stream.Settings, limits stream.Limits) *timed {
	t.Helper()
	s := &timed{clock: clocktesting.NewFakeClock(t0), store: watchedStore()}
	s.quota = stream.NewQuota(s.clock, func() float64 { return 0.5 }, limits)
	s.streams = NewStreams(s.store, s.clock, func() float64 { return 1 }, s.quota, settings)
	s.Server, s.group = serveStreams(t, s.store, s.streams, enableAll)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.streams.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	s.awaitTimers(t)
	return s
}

// awaitTimers waits until both hubs wait for their timers.
func (s *timed) awaitTimers(t *testing.T) {
	t.Helper()
	eventually(t, "the timers of both hubs", func() bool { return s.clock.Waiters() == 2 })
}

// step moves the clock when both hubs wait for it: one that is between reading the time and
// setting its timer would miss the step, and wait for another one.
func (s *timed) step(t *testing.T, d time.Duration) {
	t.Helper()
	s.awaitTimers(t)
	s.clock.Step(d)
}

// await waits until the number of open watches is as said: a client learns of an
// end a moment before the server is done with it.
func (s *timed) await(t *testing.T, open int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d open watches", open), func() bool { return s.quota.Open() == open })
}

// eventually waits for something that a goroutine of the server does.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		t.Fatalf("wait for %s: %v", what, err)
	}
}

const (
	reflectorQuery = "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	bookmarksQuery = "?watch=true&allowWatchBookmarks=true&resourceVersion=5"
	plainQuery     = "?watch=true&resourceVersion=5"
)

// initial are the events with which a watch of the nodes begins.
func initial(version string) []string {
	return []string{"ADDED *" + version + ".NodeMetrics node-a " + millis(0), "ADDED *" + version + ".NodeMetrics node-b " + millis(0)}
}

// TestWatchEnds checks the last events of watches that the server ends.
func TestWatchEnds(t *testing.T) {
	bookmark := "BOOKMARK *v1.NodeMetrics  " + millis(0)
	lastEvents := map[string][]string{
		reflectorQuery: {bookmark + " end", "ERROR *v1.Status 504 Timeout", "EOF"},
		bookmarksQuery: {bookmark, "EOF"},
		plainQuery:     {"EOF"},
	}
	tests := map[string]func(*testing.T, *timed){
		"maximum age": func(t *testing.T, s *timed) { s.step(t, time.Hour) },
		"turned off": func(t *testing.T, s *timed) {
			s.group.ServeWatch(false)
			s.step(t, 21*time.Second)
		},
		"drained": func(t *testing.T, s *timed) {
			s.streams.Drain(5 * time.Second)
			s.step(t, 6*time.Second)
		},
	}
	for name, end := range tests {
		for query, expected := range lastEvents {
			t.Run(name+" "+query, func(t *testing.T) {
				s := serveTimed(t, stream.Settings{BookmarkInterval: 2 * time.Hour, MaxAge: time.Hour}, usualLimits)
				w := follow(t, s.Server, "v1/nodes"+query, "application/json")
				w.expect(initial("v1")...)
				if query == reflectorQuery {
					w.expect(expected[0])
					expected = expected[1:]
				}
				end(t, s)
				w.expect(expected...)
				s.await(t, 0)
			})
		}
	}
}

// TestBookmarks: only for those who allow them, at the interval, which open watches
// take up when it changes.
func TestBookmarks(t *testing.T) {
	s := serveTimed(t, stream.Settings{BookmarkInterval: time.Minute}, usualLimits)
	with := follow(t, s.Server, "v1beta1/nodes"+bookmarksQuery, "application/json")
	without := follow(t, s.Server, "v1beta1/nodes"+plainQuery, "application/json")
	with.expect(initial("v1beta1")...)
	without.expect(initial("v1beta1")...)
	s.step(t, time.Minute)
	with.expect("BOOKMARK *v1beta1.NodeMetrics  " + millis(0))
	s.streams.Apply(stream.Settings{BookmarkInterval: 10 * time.Second})
	s.step(t, time.Minute)
	with.expect("BOOKMARK *v1beta1.NodeMetrics  " + millis(0))
	s.step(t, 10*time.Second)
	with.expect("BOOKMARK *v1beta1.NodeMetrics  " + millis(0))

	put(s.store.Nodes, "", "node-a", map[string]string{"zone": "a"}, sample(time.Second, samplestore.Usage{CPU: 1}))
	next := "ADDED *v1beta1.NodeMetrics node-a " + millis(time.Second)
	with.expect(next)
	without.expect(next)
	s.step(t, 10*time.Second)
	with.expect("BOOKMARK *v1beta1.NodeMetrics  " + millis(time.Second))
}

// TestServeWatch turns watch off and on again: both documents of discovery, what
// is answered, and get and list, which do not change.
func TestServeWatch(t *testing.T) {
	s := serveTimed(t, usualSettings, usualLimits)
	list := string(get(t, s.Server, "/apis/metrics.k8s.io/v1/nodes", "").body)
	check := func(served bool) {
		t.Helper()
		if diff := cmp.Diff(map[bool]string{true: "get list watch", false: "get list"}[served], verbs(t, s.Server)); diff != "" {
			t.Errorf("verbs (-want +got):\n%s", diff)
		}
		if got := string(get(t, s.Server, "/apis/metrics.k8s.io/v1/nodes", "").body); got != list {
			t.Errorf("the list has changed from %s to %s", list, got)
		}
		if got := get(t, s.Server, "/apis/metrics.k8s.io/v1/nodes/node-a", "").code; got != http.StatusOK {
			t.Errorf("get answers %d", got)
		}
	}
	serve := func(watch bool) {
		t.Helper()
		for range 2 { // the second changes nothing
			s.group.ServeWatch(watch)
		}
	}
	check(true)
	follow(t, s.Server, "v1/nodes"+plainQuery, "application/json").expect(initial("v1")...)

	serve(false)
	check(false)
	for _, path := range []string{"pods?watch=true", "pods" + reflectorQuery, "watch/pods", "namespaces/shop/pods?watch=1"} {
		for _, version := range GroupVersions() {
			a := get(t, s.Server, "/apis/"+version.String()+"/"+path, "")
			var status metav1.Status
			decodeStatus(t, a, &status)
			if want := `watch is not supported on resources of kind "pods.metrics.k8s.io"`; a.code != http.StatusMethodNotAllowed || status.Message != want {
				t.Errorf("%s answers %d %q, want 405 %q", path, a.code, status.Message, want)
			}
		}
	}
	serve(true)
	check(true)
	follow(t, s.Server, "v1/nodes"+plainQuery, "application/json").expect(initial("v1")...)
}

// verbs are those that all resources have in both documents of discovery.
func verbs(t *testing.T, server *httptest.Server) string {
	t.Helper()
	seen := map[string]bool{}
	add := func(verbs []string) {
		line := ""
		for i, verb := range verbs {
			if i > 0 {
				line += " "
			}
			line += verb
		}
		seen[line] = true
	}
	for _, version := range GroupVersions() {
		var resources metav1.APIResourceList
		decode(t, get(t, server, "/apis/"+version.String(), ""), &resources)
		for _, r := range resources.APIResources {
			add(r.Verbs)
		}
	}
	var groups apidiscoveryv2.APIGroupDiscoveryList
	decode(t, get(t, server, "/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"), &groups)
	for _, group := range groups.Items {
		for _, version := range group.Versions {
			for _, r := range version.Resources {
				add(r.Verbs)
			}
		}
	}
	if len(seen) != 1 {
		t.Fatalf("resources differ in their verbs: %v", seen)
	}
	for line := range seen {
		return line
	}
	return ""
}

func decodeStatus(t *testing.T, a answer, status *metav1.Status) {
	t.Helper()
	if err := json.Unmarshal(a.body, status); err != nil {
		t.Fatalf("got code %d and no Status: %s", a.code, a.body)
	}
}

// TestWatchLimits refuses with 429, the limit that was met and when to come again,
// and admits again once a watch has ended.
func TestWatchLimits(t *testing.T) {
	wide := stream.Limits{Connections: 10, PerUser: 10, OpensPerSecond: 10, OpensBurst: 10}
	tests := map[string]struct {
		change func(*stream.Limits)
		text   string
		after  string
	}{
		"in total": {
			change: func(l *stream.Limits) { l.Connections = 1 },
			text:   `no more watches for user "system:anonymous", with 1 open: tenants share 1, and a single one may use half of them (spec.watch.maxWatches)`, after: "10",
		},
		"of a user": {
			change: func(l *stream.Limits) { l.PerUser = 1 },
			text:   `user "system:anonymous" has all of its 1 watches in use (spec.watch.maxWatchesPerUser)`, after: "10",
		},
		"of the rate": {
			change: func(l *stream.Limits) { l.OpensPerSecond, l.OpensBurst = 0.5, 1 },
			text:   `user "system:anonymous" opens watches faster than 0.5 a second (spec.watch.maxOpensPerSecondPerUser)`, after: "2",
		},
		"after the drain": {
			text: "this server shuts down; watch again, which leads to another", after: "3",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			limits := wide
			if test.change != nil {
				test.change(&limits)
			}
			s := serveTimed(t, usualSettings, limits)
			follow(t, s.Server, "v1/nodes"+plainQuery, "application/json").expect(initial("v1")...)
			if test.change == nil {
				s.streams.Drain(time.Second)
			}
			a := get(t, s.Server, "/apis/metrics.k8s.io/v1/pods?watch=true", "")
			var status metav1.Status
			decodeStatus(t, a, &status)
			got := []any{a.code, status.Reason, status.Message, a.header.Get("Retry-After")}
			if diff := cmp.Diff([]any{http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, test.text, test.after}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := s.quota.Open(); got != 1 {
				t.Errorf("%d watches are counted, want 1", got)
			}
			if test.change == nil {
				return
			}
			s.quota.Apply(wide)
			s.step(t, 5*time.Second)
			follow(t, s.Server, "v1/nodes"+plainQuery, "application/json").expect(initial("v1")...)
		})
	}
}
