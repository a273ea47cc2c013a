// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/point"
)

// Nodes are large and change every few seconds, all of them: kube-apiserver
// holds them in protobuf, and nothing here needs them in JSON.
func TestInformersAskForProtobuf(t *testing.T) {
	type request struct{ path, accept string }
	asked := make(chan request, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- request{r.URL.Path, r.Header.Get("Accept")}:
		default:
		}
		http.Error(w, "busy", http.StatusServiceUnavailable)
	}))
	defer server.Close()

	client := &rest.Config{Host: server.URL}
	defaults, err := settingsFrom(&v1alpha1.MetricsBackendSpec{})
	if err != nil {
		t.Fatal(err)
	}
	store := point.NewStore(clock.RealClock{}, defaults.maxAge)
	source, err := newSource(client, store, clock.RealClock{}, nil, defaults.kubelet)
	if err != nil {
		t.Fatal(err)
	}
	feeds, err := newFeeds(client, store, source)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, f := range feeds {
		running.Go(func() { f.informer.RunWithContext(ctx) })
	}
	missing := map[string]bool{"/api/v1/nodes": true, "/api/v1/pods": true}
	for len(missing) > 0 {
		r := <-asked
		if !strings.HasPrefix(r.accept, "application/vnd.kubernetes.protobuf") {
			t.Errorf("%s is asked for in %q, want protobuf first", r.path, r.accept)
		}
		delete(missing, r.path)
	}
}
