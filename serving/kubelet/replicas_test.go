// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"crypto/tls"
	"fmt"
	"hash/fnv"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// refreshed returns when a kubelet last renewed its samples: each 10 to 20 s.
func refreshed(node string, now time.Time) time.Time {
	const period, jitter = 15 * time.Second, 5 * time.Second
	at := func(n int64) time.Time {
		h := fnv.New32a()
		fmt.Fprint(h, node, n)
		return time.Unix(0, n*int64(period)).Add(time.Duration(float64(h.Sum32()) / (1 << 32) * float64(jitter))).Truncate(time.Millisecond)
	}
	n := now.UnixNano() / int64(period)
	if at(n).After(now) {
		n--
	}
	return at(n)
}

// TestReplicas counts how often the sample of a pod goes back for a client whose requests
// alternate between two replicas. With phases of their own it was in one of 7 and one of 11.
func TestReplicas(t *testing.T) {
	for name, test := range map[string]struct {
		tracked bool
		// rare is the least number of requests for one in which it goes back.
		rare int
	}{
		"refreshes are not tracked": {false, 1000},
		// Each replica's estimate of the next refresh depends on what it has seen.
		"refreshes are tracked": {true, 13},
	} {
		t.Run(name, func(t *testing.T) { testReplicas(t, test.tracked, test.rare) })
	}
}

func testReplicas(t *testing.T, tracked bool, rare int) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		const nodes = 50
		handle := func(node string, w http.ResponseWriter, _ *http.Request) {
			at := refreshed(node, time.Now())
			if tracked {
				_, _ = fmt.Fprintf(w, "node_cpu_usage_seconds_total %d %d\nnode_memory_working_set_bytes 1\n", at.Unix(), at.UnixMilli())
			}
			labels := fmt.Sprintf(`{container="c",namespace="ns",pod="%s"}`, node)
			_, _ = fmt.Fprintf(w, "container_cpu_usage_seconds_total%s %d %d\ncontainer_memory_working_set_bytes%s 1\n", labels, at.Unix(), at.UnixMilli(), labels)
		}
		var replicas [2]*bubble
		for i := range replicas {
			replicas[i] = newBubble(t, testSettings(), certificate, handle)
			for n := range nodes {
				replicas[i].source.store.Pods.SetMeta(samplestore.Key{Namespace: "ns", Name: replicas[i].name(n)}, &samplestore.Meta{})
			}
			replicas[i].add(nodes)
			time.Sleep(7 * time.Second)
		}
		time.Sleep(2 * time.Minute)
		requests, back := 0, 0
		var last [nodes]samplestore.Time
		for i := range 600 {
			time.Sleep(time.Second)
			synctest.Wait()
			for n := range nodes {
				o := replicas[i%2].source.store.Pods.Get(samplestore.Key{Namespace: "ns", Name: replicas[0].name(n)})
				if o == nil {
					t.Fatalf("%s has no point", replicas[0].name(n))
				}
				requests++
				if o.Point.Newest < last[n] {
					back++
				}
				last[n] = o.Point.Newest
			}
		}
		t.Logf("the sample went back in %d of %d requests", back, requests)
		if back*rare > requests {
			t.Errorf("want at most one in %d", rare)
		}
	})
}
