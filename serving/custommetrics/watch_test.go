// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"

	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
	"github.com/metricsbackend/metrics-backend-operator/test/apiserver"
	"github.com/metricsbackend/metrics-backend-operator/test/pipes"
)

// bubble runs a test under a time of its own, with a server that is reached through
// pipes. It takes the place of serve's httptest server.
func bubble(t *testing.T, w *world, test func(t *testing.T, s *served), mutate ...func(*serverConfig, *Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, w, mutate...)
		network := pipes.New()
		server := &httptest.Server{Listener: network, Config: &http.Server{Handler: s.generic.Handler}}
		server.Start()
		client := network.Client()
		server.URL = "http://custom.test"
		inside := &served{Server: server, group: s.group, quota: s.quota, generic: s.generic, client: client}
		test(t, inside)
		client.CloseIdleConnections()
		server.CloseClientConnections()
		server.Close()
	})
}

// watching reads the events of a watch.
type watching struct {
	*testing.T
	lines *bufio.Scanner
	began time.Time
}

func (s *served) watch(t *testing.T, path string) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.http().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = response.Body.Close()
	})
	lines := bufio.NewScanner(response.Body)
	if response.StatusCode != http.StatusOK {
		lines.Scan()
		t.Fatalf("watch %s: %d %s", path, response.StatusCode, lines.Text())
	}
	return &watching{T: t, lines: lines, began: time.Now()}
}

// next returns an event as TYPE OBJECT = VALUE at SECONDS after the watch began.
func (w *watching) next() string {
	w.Helper()
	if !w.lines.Scan() {
		if err := w.lines.Err(); err != nil {
			return fmt.Sprintf("%v at %.0fs", err, time.Since(w.began).Seconds())
		}
		return fmt.Sprintf("EOF at %.0fs", time.Since(w.began).Seconds())
	}
	var event metav1.WatchEvent
	if err := json.Unmarshal(w.lines.Bytes(), &event); err != nil {
		w.Fatalf("not an event: %s", w.lines.Text())
	}
	at := fmt.Sprintf("at %.0fs", time.Since(w.began).Seconds())
	switch event.Type {
	case "BOOKMARK":
		var list v1beta2.MetricValueList
		if err := json.Unmarshal(event.Object.Raw, &list); err != nil {
			w.Fatal(err)
		}
		if list.Kind != "MetricValueList" || list.Items == nil || len(list.Items) != 0 || list.ResourceVersion == "" {
			w.Errorf("a bookmark is not an empty list with a resourceVersion: %s", event.Object.Raw)
		}
		return "BOOKMARK " + at
	case "ADDED":
		var v v1beta2.MetricValue
		if err := json.Unmarshal(event.Object.Raw, &v); err != nil {
			w.Fatal(err)
		}
		if v.Kind != "MetricValue" || !strings.HasPrefix(v.APIVersion, "custom.metrics.k8s.io/v1beta") {
			w.Errorf("an event is of a %s %s", v.APIVersion, v.Kind)
		}
		return fmt.Sprintf("ADDED %s = %s %s", v.DescribedObject.Name, v.Value.String(), at)
	}
	return event.Type + " " + string(event.Object.Raw)
}

func (w *watching) expect(want ...string) {
	w.Helper()
	for _, line := range want {
		if got := w.next(); got != line {
			w.Errorf("event %q, want %q", got, line)
		}
	}
}

// TestWatchEndsInTime holds the times of both kinds of path. kube-apiserver breaks a
// ?watch=true after 60 s; what is below /watch/ goes on for as long as it was asked for.
func TestWatchEndsInTime(t *testing.T) {
	const pods = "/namespaces/shop/pods/web-1/hits"
	tests := map[string]struct {
		path string
		want []string
	}{
		"short": {root("v1beta2") + pods + "?watch=true", []string{"EOF at 47s"}},
		"short, with bookmarks": {
			root("v1beta2") + pods + "?watch=true&allowWatchBookmarks=true", []string{"BOOKMARK at 45s", "EOF at 47s"},
		},
		"short, for longer":       {root("v1beta1") + pods + "?watch=1&timeoutSeconds=600", []string{"EOF at 47s"}},
		"short, for even less":    {root("v1beta1") + pods + "?watch=true&timeoutSeconds=20", []string{"EOF at 20s"}},
		"long":                    {root("v1beta1") + "/watch" + pods + "?timeoutSeconds=300", []string{"EOF at 300s"}},
		"long, whatever it says":  {root("v1beta1") + "/watch" + pods + "?timeoutSeconds=300&watch=false", []string{"EOF at 300s"}},
		"long, with bookmarks":    {root("v1beta2") + "/watch" + pods + "?timeoutSeconds=70&allowWatchBookmarks=true", []string{"BOOKMARK at 52s", "BOOKMARK at 68s", "EOF at 70s"}},
		"any resourceVersion":     {root("v1beta2") + pods + "?watch=true&resourceVersion=7&timeoutSeconds=5", []string{"EOF at 5s"}},
		"a namespace's own":       {root("v1beta2") + "/namespaces/shop/metrics/queue-length?watch=true", []string{"EOF at 47s"}},
		"a namespace's own, long": {root("v1beta2") + "/watch/namespaces/shop/metrics/queue-length?timeoutSeconds=100", []string{"EOF at 100s"}},
		"no namespace":            {root("v1beta2") + "/nodes/*/load?watch=true", []string{"EOF at 47s"}},
		"no namespace, long":      {root("v1beta2") + "/watch/nodes/*/load?timeoutSeconds=100", []string{"EOF at 100s"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, newWorld(), func(t *testing.T, s *served) {
				w := s.watch(t, tc.path)
				if first := w.next(); !strings.HasPrefix(first, "ADDED ") || !strings.HasSuffix(first, " at 0s") {
					t.Errorf("the first event is %q", first)
				}
				w.expect(tc.want...)
				synctest.Wait()
				if open := s.quota.Open(); open != 0 {
					t.Errorf("%d watches are still open", open)
				}
			})
		})
	}
}

// TestWatchDelivers: all values at once, then each that is new, and pods as they come
// and go; who comes back has all again.
func TestWatchDelivers(t *testing.T) {
	w := newWorld()
	bubble(t, w, func(t *testing.T, s *served) {
		const path = "/watch/namespaces/shop/pods/*/hits?labelSelector=app%3Dweb&timeoutSeconds=600"
		long := s.watch(t, root("v1beta2")+path)
		long.expect("ADDED web-1 = 500m at 0s", "ADDED web-2 = 1500 at 0s")
		// The same values are no news, and neither are those of others.
		time.Sleep(time.Minute)
		w.replace("pods/hits", "db-1", 8, t0.Add(time.Minute))
		w.replace("pods/hits", "web-2", 1501, t0.Add(time.Minute))
		first := long.next()
		if !strings.HasPrefix(first, "ADDED web-2 = 1501 at ") {
			t.Errorf("event %q, want the new value of web-2", first)
		}
		if after := time.Since(long.began); after > 76*time.Second {
			t.Errorf("the new value came after %v, want within an interval of 15 s", after)
		}
		w.object("pods", "shop", "db-1", "app=web") // is selected from now on
		if got := long.next(); !strings.HasPrefix(got, "ADDED db-1 = 8 at ") {
			t.Errorf("event %q, want the value of the pod that is selected now", got)
		}
		again := s.watch(t, root("v1beta1")+path+"&resourceVersion=12345")
		again.expect("ADDED db-1 = 8 at 0s", "ADDED web-1 = 500m at 0s", "ADDED web-2 = 1501 at 0s")
		w.replace("pods/hits", "web-1", 1, t0.Add(2*time.Minute))
		for _, both := range []*watching{long, again} {
			if got := both.next(); !strings.HasPrefix(got, "ADDED web-1 = 1 at ") {
				t.Errorf("event %q, want the new value of web-1", got)
			}
		}
	})
	// One query for two watches: one evaluation an interval.
	w.mu.Lock()
	defer w.mu.Unlock()
	if asked := w.asked["pods/hits"]; asked < 6 || asked > 10 {
		t.Errorf("the source was asked %d times in some two minutes, want once in 15 s", asked)
	}
}

// TestWatchWithoutObjects stays open, asks for nothing, and begins when there are some.
func TestWatchWithoutObjects(t *testing.T) {
	w := newWorld()
	bubble(t, w, func(t *testing.T, s *served) {
		empty := s.watch(t, root("v1beta2")+"/watch/namespaces/shop/pods/*/hits?labelSelector=app%3Dnew&timeoutSeconds=600")
		time.Sleep(time.Minute)
		w.mu.Lock()
		if len(w.asked) != 0 {
			t.Errorf("the source was asked %v for no object", w.asked)
		}
		w.mu.Unlock()
		w.object("pods", "shop", "gone-1", "app=new")
		if got := empty.next(); !strings.HasPrefix(got, "ADDED gone-1 = 9 at ") {
			t.Errorf("event %q, want the value of the pod that is selected now", got)
		}
	})
}

// TestWatchMode: watches are turned off and on again, live.
func TestWatchMode(t *testing.T) {
	bubble(t, newWorld(), func(t *testing.T, s *served) {
		const get = "/namespaces/shop/pods/web-1/hits"
		verbs := func() string {
			var list metav1.APIResourceList
			if err := json.Unmarshal(s.do(t, http.MethodGet, root("v1beta2"), "").body, &list); err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(list.APIResources[0].Verbs)
		}
		watch := s.watch(t, root("v1beta2")+"/watch"+get+"?timeoutSeconds=600&allowWatchBookmarks=true")
		watch.expect("ADDED web-1 = 500m at 0s")
		if diff := cmp.Diff("[get watch]", verbs()); diff != "" {
			t.Error(diff)
		}
		s.group.ServeWatch(false)
		for _, path := range []string{get + "?watch=true", "/watch" + get} {
			got := s.do(t, http.MethodGet, root("v1beta2")+path, "")
			if got.code != http.StatusMethodNotAllowed {
				t.Errorf("%s while turned off: %d %s", path, got.code, got.body)
			}
		}
		if diff := cmp.Diff("[get]", verbs()); diff != "" {
			t.Error(diff)
		}
		if got := s.do(t, http.MethodGet, root("v1beta2")+get, ""); got.code != http.StatusOK {
			t.Errorf("GET while turned off: %d %s", got.code, got.body)
		}
		watch.expect("BOOKMARK at 10s", "EOF at 10s")
		s.group.ServeWatch(true)
		s.watch(t, root("v1beta2")+get+"?watch=true").expect("ADDED web-1 = 500m at 0s")
		s.group.Drain(time.Second)
		if got := s.do(t, http.MethodGet, root("v1beta2")+get+"?watch=true", ""); got.code != http.StatusTooManyRequests {
			t.Errorf("a watch while draining: %d %s", got.code, got.body)
		}
	})
}

// discoveryChanges calls before ahead of each change of the aggregated discovery document.
type discoveryChanges struct {
	aggregated.ResourceManager
	before func()
}

func (d *discoveryChanges) AddGroupVersion(group string, version apidiscoveryv2.APIVersionDiscovery) {
	d.before()
	d.ResourceManager.AddGroupVersion(group, version)
}

// TestServeWatchOrder verifies that discovery never offers a watch that is refused: watches
// are still served when the verb leaves discovery, and already served when it comes back.
func TestServeWatchOrder(t *testing.T) {
	changes := &discoveryChanges{ResourceManager: aggregated.NewResourceManager("apis"), before: func() {}}
	s := serve(t, newWorld(), func(c *serverConfig, _ *Options) { c.AggregatedDiscoveryGroupManager = changes })
	for _, enabled := range []bool{false, true} {
		var codes []int
		changes.before = func() {
			answer, _ := apiserver.Get(t.Context(), s.generic.Handler, root("v1beta2")+"/namespaces/shop/pods/web-1/hits?watch=true", "application/json")
			codes = append(codes, answer.Code)
		}
		s.group.ServeWatch(enabled)
		if diff := cmp.Diff([]int{http.StatusOK, http.StatusOK}, codes); diff != "" {
			t.Errorf("watches while the verb changes in discovery of two versions, enabled %t (-want +got):\n%s", enabled, diff)
		}
	}
}

// TestWatchRefusals has what a watch may not ask for.
func TestWatchRefusals(t *testing.T) {
	server := serve(t, newWorld(), func(_ *serverConfig, o *Options) {
		o.Quota = stream.NewQuota(o.Clock, func() float64 { return 0 }, stream.Limits{Connections: 1, PerUser: 1, OpensPerSecond: 100, OpensBurst: 100})
	})
	for path, code := range map[string]int{
		"/namespaces/shop/pods/*/hits?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan": http.StatusUnprocessableEntity,
		"/watch/namespaces/shop/pods/*/hits?sendInitialEvents=false&resourceVersionMatch=NotOlderThan":     http.StatusUnprocessableEntity,
		"/watch/namespaces/shop/pods/*/hits?labelSelector=%3D":                                             http.StatusBadRequest,
		"/namespaces/shop/pods/*/hits?watch=true&timeoutSeconds=x":                                         http.StatusBadRequest,
		"/namespaces/shop/pods/*/hits?watch=true&fieldSelector=metadata.name%3Da":                          http.StatusBadRequest,
		"/watch/namespaces/shop/pods/*/misses":                                                             http.StatusNotFound,
		"/watch/namespaces/shop/pods":                                                                      http.StatusNotFound,
	} {
		if got := server.do(t, http.MethodGet, root("v1beta2")+path, ""); got.code != code {
			t.Errorf("%s: %d, want %d: %s", path, got.code, code, got.body)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodHead, http.MethodDelete} {
		if got := server.do(t, method, root("v1beta2")+"/watch/namespaces/shop/pods/*/hits", ""); got.code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, got.code)
		}
	}
	open := server.watch(t, root("v1beta2")+"/watch/namespaces/shop/pods/web-1/hits")
	open.expect("ADDED web-1 = 500m at 0s")
	got := server.do(t, http.MethodGet, root("v1beta2")+"/namespaces/shop/pods/web-1/hits?watch=true", "")
	if got.code != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
		t.Errorf("one watch too many: %d, Retry-After %q", got.code, got.header.Get("Retry-After"))
	}
}

// TestUnresolvedWatch: an API server that calls a watch a get does not serve one.
func TestUnresolvedWatch(t *testing.T) {
	server := serve(t, newWorld(), func(c *serverConfig, _ *Options) { c.RequestInfoResolver = nil })
	if got := server.do(t, http.MethodGet, root("v1beta2")+"/namespaces/shop/pods/*/hits?watch=true&timeoutSeconds=1", ""); got.code != http.StatusInternalServerError {
		t.Errorf("%d %s", got.code, got.body)
	}
}
