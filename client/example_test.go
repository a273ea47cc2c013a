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

	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/client"
)

// Follow the nodes of a cluster. In place of a cluster's address (rest.InClusterConfig, or clientcmd with a kubeconfig)
// there is a small server here, which sends one list and one event.
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
	for change := range nodes.Changes() {
		cpu := change.Object.Usage.Cpu()
		fmt.Println(change.Type, change.Object.Name, cpu)
		if cpu.MilliValue() == 450 {
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
	// Updated node-1 450m
	// now node-1 450m 2Gi
	// Watching v1
}

func serveNodes(w http.ResponseWriter, r *http.Request) {
	node := func(at, cpu string) string {
		return `{"kind":"NodeMetrics","apiVersion":"metrics.k8s.io/v1","metadata":{"name":"node-1"},
			"timestamp":"` + at + `","window":"15s","usage":{"cpu":"` + cpu + `","memory":"2Gi"}}`
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/apis/metrics.k8s.io/v1":
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"metrics.k8s.io/v1",
			"resources":[{"name":"nodes","kind":"NodeMetrics","verbs":["get","list","watch"]}]}`)
	case r.URL.Query().Get("watch") == "":
		_, _ = io.WriteString(w, `{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1",
			"items":[`+node("2026-01-01T00:00:00Z", "300m")+`]}`)
	default:
		_, _ = io.WriteString(w, `{"type":"ADDED","object":`+node("2026-01-01T00:00:15Z", "450m")+`}`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}
