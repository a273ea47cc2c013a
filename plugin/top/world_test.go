// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
)

// world is a cluster with a metrics API. Watches send what is put into events.
type world struct {
	verbs  []string
	nodes  int // the code of a list of nodes' objects
	pods   int // the code of a list of pods' objects
	lists  int // the code of lists of metrics
	events chan string
	opened chan struct{} // gets one for each watch

	mu      sync.Mutex
	queries []string
}

func newWorld() *world {
	return &world{verbs: []string{"get", "list", "watch"}, nodes: 200, pods: 200, lists: 200, events: make(chan string), opened: make(chan struct{}, 10)}
}

func (w *world) start(t *testing.T) *connection.Cluster {
	t.Helper()
	server := httptest.NewServer(w)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	cluster, err := connection.ForConfig(&rest.Config{Host: server.URL}, t.Output(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

func podAt(name, at string, cpu, memory int) string {
	return fmt.Sprintf(`{"kind":"PodMetrics","apiVersion":"metrics.k8s.io/v1","metadata":{"name":%q,"namespace":"shop"},
		"timestamp":%q,"window":"15s","containers":[{"name":"app","usage":{"cpu":"%dm","memory":"%dMi"}},
		{"name":"sidecar","usage":{"cpu":"1m","memory":"2Mi"}}]}`, name, at, cpu, memory)
}

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.queries = append(w.queries, r.URL.Path+"?"+r.URL.RawQuery)
	w.mu.Unlock()
	rw.Header().Set("Content-Type", "application/json")
	code, body := http.StatusOK, ""
	switch path := r.URL.Path; {
	case path == "/apis/metrics.k8s.io/v1":
		verbs, _ := json.Marshal(w.verbs)
		body = fmt.Sprintf(`{"kind":"APIResourceList","apiVersion":"v1","resources":[{"name":"pods","verbs":%s},{"name":"nodes","verbs":%s}]}`, verbs, verbs)
	case r.URL.Query().Get("watch") != "":
		rw.(http.Flusher).Flush()
		w.opened <- struct{}{}
		for {
			select {
			case <-r.Context().Done():
				return
			case event, ok := <-w.events:
				if !ok {
					return
				}
				_, _ = rw.Write([]byte(event))
				rw.(http.Flusher).Flush()
			}
		}
	case path == "/api/v1/namespaces/shop/pods":
		code = w.pods
		body = `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"cart-0","namespace":"shop"},"spec":{"resources":{"limits":{"memory":"512Mi"}},
			"containers":[{"name":"app","resources":{"requests":{"cpu":"200m","memory":"64Mi"},"limits":{"cpu":"1","memory":"128Mi"}}}],
			"initContainers":[{"name":"migrate","resources":{"requests":{"cpu":"2","memory":"1Gi"}}},
				{"name":"sidecar","restartPolicy":"Always","resources":{"requests":{"cpu":"100m","memory":"32Mi"},"limits":{"memory":"128Mi"}}}]}},
			{"metadata":{"name":"other","namespace":"shop"},"spec":{"containers":[{"name":"app"}]}}]}`
	case strings.HasSuffix(path, "/pods"):
		code = w.lists
		body = `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1","items":[` + podAt("cart-0", "2026-05-04T12:00:00Z", 250, 64) + `,` + podAt("db-0", "2026-05-04T12:00:00Z", 30, 900) + `]}`
	case strings.HasSuffix(path, "metrics.k8s.io/v1/nodes"):
		code = w.lists
		body = `{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1","items":[{"metadata":{"name":"node-a"},"timestamp":"2026-05-04T12:00:00Z","window":"15s","usage":{"cpu":"1","memory":"4Gi"}}]}`
	case path == "/api/v1/nodes":
		code = w.nodes
		body = `{"kind":"NodeList","apiVersion":"v1","items":[
			{"metadata":{"name":"node-a"},"status":{"allocatable":{"cpu":"4","memory":"16Gi"}}},
			{"metadata":{"name":"node-b"},"status":{"allocatable":{"cpu":"4","memory":"16Gi"}}}]}`
	default:
		code = http.StatusNotFound
	}
	if code != http.StatusOK {
		body = fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"no"}`, code,
			map[int]string{403: "Forbidden", 401: "Unauthorized", 404: "NotFound", 503: "ServiceUnavailable"}[code])
	}
	rw.WriteHeader(code)
	_, _ = rw.Write([]byte(body))
}
