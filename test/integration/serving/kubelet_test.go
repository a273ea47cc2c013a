//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// renewal is how often a fake kubelet updates its samples; a real one takes 10 to 20 seconds.
const renewal = 500 * time.Millisecond

// What every container and every node uses, so that tests know the values.
const (
	containerMillicores = 250
	containerMebibytes  = 64
	nodeMillicores      = 1500
	nodeMebibytes       = 2048
	swapMebibytes       = 32
)

// fakeKubelet serves /metrics/resource with counters that grow steadily.
type fakeKubelet struct {
	started time.Time

	mu      sync.Mutex
	pods    map[string][]string
	scrapes []time.Time
	// bearer is the newest token that it was sent.
	bearer string
	// samples are the times of the samples that it returned, in milliseconds, each once.
	samples []int64
	// frozen is when it stopped updating its samples; zero while it updates them.
	frozen time.Time
}

// startNode creates a Node and its kubelet.
func (c *controlPlane) startNode(t *testing.T, name string, labels map[string]string) *fakeKubelet {
	t.Helper()
	k := &fakeKubelet{started: time.Now().Add(-time.Hour), pods: map[string][]string{}}
	leaf, err := c.kubeletCA.Issue("kubelet", []string{"127.0.0.1"})
	if err != nil {
		t.Fatalf("issue a kubelet's certificate: %v", err)
	}
	c.createNode(t, name, serveTLS(t, http.HandlerFunc(k.serve), &tls.Config{Certificates: []tls.Certificate{leaf.TLS}}), labels)
	return k
}

// startWorkload creates three pods on two nodes that are labeled with the test.
func startWorkload(t *testing.T, test string) []*fakeKubelet {
	t.Helper()
	kubelets := []*fakeKubelet{
		cluster.startNode(t, "node-a", map[string]string{nodesOf: test, "zone": "x"}),
		cluster.startNode(t, "node-b", map[string]string{nodesOf: test, "zone": "y"}),
	}
	kubelets[0].run("web-0", "app", "sidecar")
	kubelets[0].run("web-1", "app")
	kubelets[1].run("job-0", "work")
	cluster.createPod(t, "node-a", "web-0", map[string]string{"app": "web"}, "app", "sidecar")
	cluster.createPod(t, "node-a", "web-1", map[string]string{"app": "web"}, "app")
	cluster.createPod(t, "node-b", "job-0", map[string]string{"app": "job"}, "work")
	return kubelets
}

// run adds a pod to what the kubelet reports.
func (k *fakeKubelet) run(pod string, containers ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods[pod] = containers
}

// stop takes a pod out of what the kubelet reports.
func (k *fakeKubelet) stop(pod string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pods, pod)
}

// freeze stops updates of samples until thaw.
func (k *fakeKubelet) freeze() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.frozen = time.Now()
}

func (k *fakeKubelet) thaw() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.frozen = time.Time{}
}

// answered returns the times of the samples that were returned so far, each once.
func (k *fakeKubelet) answered() []int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.samples)
}

// shortestRate is the least time between two samples of a rate (docs/concepts/resource-metrics.md).
const shortestRate = time.Second

// points returns the times of the samples that become data points, and of the first, which has no rate.
func (k *fakeKubelet) points() []int64 {
	var points []int64
	for _, sample := range k.answered() {
		if n := len(points); n == 0 || sample-points[n-1] >= shortestRate.Milliseconds() {
			points = append(points, sample)
		}
	}
	return points
}

// token returns the newest token that it was sent, or "".
func (k *fakeKubelet) token() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bearer
}

// requests returns the number of requests since a time.
func (k *fakeKubelet) requests(since time.Time) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, at := range k.scrapes {
		if at.After(since) {
			n++
		}
	}
	return n
}

func (k *fakeKubelet) serve(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.scrapes = append(k.scrapes, time.Now())
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		k.bearer = token
	}
	if !strings.HasPrefix(k.bearer, "ey") {
		http.Error(w, "a token is needed", http.StatusUnauthorized)
		return
	}
	if r.URL.Path != "/metrics/resource" {
		http.NotFound(w, r)
		return
	}
	sample := time.Now()
	if !k.frozen.IsZero() {
		sample = k.frozen
	}
	sample = sample.Truncate(renewal)
	if n := len(k.samples); n == 0 || k.samples[n-1] != sample.UnixMilli() {
		k.samples = append(k.samples, sample.UnixMilli())
	}
	age := sample.Sub(k.started).Seconds()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	line := func(name, labels string, value float64) {
		fmt.Fprintf(w, "%s%s %s %d\n", name, labels, strconv.FormatFloat(value, 'g', -1, 64), sample.UnixMilli())
	}
	line("node_cpu_usage_seconds_total", "", age*nodeMillicores/1000)
	line("node_memory_working_set_bytes", "", nodeMebibytes<<20)
	line("node_swap_usage_bytes", "", swapMebibytes<<20)
	for pod, containers := range k.pods {
		for _, container := range containers {
			labels := fmt.Sprintf(`{container=%q,namespace=%q,pod=%q}`, container, workloads, pod)
			line("container_cpu_usage_seconds_total", labels, age*containerMillicores/1000)
			line("container_memory_working_set_bytes", labels, containerMebibytes<<20)
			line("container_swap_usage_bytes", labels, swapMebibytes<<20)
			line("container_start_time_seconds", labels, float64(k.started.UnixMilli())/1000)
		}
	}
}
