// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/client"
)

// Watch the nodes of a cluster. Instead of a cluster (rest.InClusterConfig, or clientcmd with a kubeconfig) the example
// uses a small server, which sends one list and one event of another node.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(serveNodes))
	defer server.Close()
	config := &rest.Config{Host: server.URL}

	nodes, err := client.Nodes(config, client.Options{MaxAge: 2 * time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ended := make(chan error)
	go func() { ended <- nodes.Run(ctx) }()

	if err := nodes.WaitForSync(ctx); err != nil {
		fmt.Println(err)
		return
	}
	// The newest change of each object is pending: a slow reader misses intermediate data points, but no object.
	for change := range nodes.Changes() {
		fmt.Println(change.Type, change.Object.Name, change.Object.Usage.Cpu())
		if change.Object.Name == "node-2" {
			break // enough for an example
		}
	}
	for _, node := range nodes.Snapshot() {
		fmt.Println("now", node.Name, node.Usage.Cpu(), node.Usage.Memory())
	}
	fmt.Println(nodes.Status().Mode, nodes.Status().Version)
	cancel()
	<-ended

	// Output:
	// Updated node-1 300m
	// Updated node-2 450m
	// now node-1 300m 2Gi
	// now node-2 450m 2Gi
	// Watching v1
}

func serveNodes(w http.ResponseWriter, r *http.Request) {
	node := func(name, at, cpu string) string {
		return `{"kind":"NodeMetrics","apiVersion":"metrics.k8s.io/v1","metadata":{"name":"` + name + `"},
			"timestamp":"` + at + `","window":"15s","usage":{"cpu":"` + cpu + `","memory":"2Gi"}}`
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/apis/metrics.k8s.io/v1":
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"metrics.k8s.io/v1",
			"resources":[{"name":"nodes","kind":"NodeMetrics","verbs":["get","list","watch"]}]}`)
	case r.URL.Query().Get("watch") == "":
		_, _ = io.WriteString(w, `{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1",
			"items":[`+node("node-1", "2026-01-01T00:00:00Z", "300m")+`]}`)
	default:
		_, _ = io.WriteString(w, `{"type":"ADDED","object":`+node("node-2", "2026-01-01T00:00:15Z", "450m")+`}`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

// Read a metric of pods, as an autoscaler does. Instead of a cluster the example uses a small server without watch, like
// prometheus-adapter: it is polled.
func ExampleCustom() {
	server := httptest.NewServer(http.HandlerFunc(serveHits))
	defer server.Close()

	hits, err := client.Custom(&rest.Config{Host: server.URL}, client.CustomMetric{
		Resource: schema.GroupResource{Resource: "pods"}, Namespace: "shop", Metric: "hits_per_second",
	}, client.Options{LabelSelector: "app=cart"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// One list; Run would keep it up to date.
	if err := hits.Sync(ctx); err != nil {
		fmt.Println(err)
		return
	}
	for _, value := range hits.Snapshot() {
		fmt.Println(value.DescribedObject.Name, value.Metric.Name, value.Value.String())
	}
	fmt.Println(hits.Status().Mode, hits.Status().Version)
	// Output:
	// cart-1 hits_per_second 12500m
	// Polling v1beta1
}

func serveHits(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/apis/custom.metrics.k8s.io/v1beta1":
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"custom.metrics.k8s.io/v1beta1",
			"resources":[{"name":"pods/hits_per_second","kind":"MetricValueList","verbs":["get"]}]}`)
	case "/apis/custom.metrics.k8s.io/v1beta1/namespaces/shop/pods/*/hits_per_second":
		_, _ = io.WriteString(w, `{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/v1beta1","items":[
			{"describedObject":{"kind":"Pod","namespace":"shop","name":"cart-1"},"metricName":"hits_per_second",
			 "timestamp":"2026-01-01T00:00:15Z","value":"12500m"}]}`)
	default:
		http.NotFound(w, r)
	}
}
