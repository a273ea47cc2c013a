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

	informers := newTestInformers(t, server.URL)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, f := range informers {
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
