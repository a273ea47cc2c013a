// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/config"
)

// newTestInformers returns the informers of nodes and pods for a kube-apiserver.
func newTestInformers(t *testing.T, host string) informerGate {
	t.Helper()
	client := &rest.Config{Host: host}
	defaults, err := config.SettingsFrom(&v1alpha1.MetricsBackendSpec{})
	if err != nil {
		t.Fatal(err)
	}
	store := samplestore.NewStore(clock.RealClock{}, defaults.MaxAge)
	source, err := (&components{store: store, clock: clock.RealClock{}, kubeletCA: &kubeletCA{}}).newKubeletSource(client, defaults.Kubelet)
	if err != nil {
		t.Fatal(err)
	}
	informers, err := newInformers(client, store, source)
	if err != nil {
		t.Fatal(err)
	}
	return informers
}

// TestNodesAfterPods: nodes wait for pods, whose points would be dropped otherwise.
func TestNodesAfterPods(t *testing.T) {
	informers := newTestInformers(t, "https://127.0.0.1:1")
	for _, f := range informers {
		if held := f.after != nil && !f.after(); held != (f.resource == "nodes") {
			t.Errorf("%s wait: %t", f.resource, held)
		}
	}
}

// TestInformerWaits: an informer does not begin before after returns true.
func TestInformerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var watching, ready atomic.Bool
		f := &resourceInformer{after: ready.Load, watch: func(ctx context.Context) { watching.Store(true); <-ctx.Done() }}
		runUntilEnd(t, f.run)
		time.Sleep(time.Minute)
		synctest.Wait()
		if watching.Load() {
			t.Error("it began before")
		}
		ready.Store(true)
		time.Sleep(time.Second)
		synctest.Wait()
		if !watching.Load() {
			t.Error("it has not begun")
		}
	})
}

func TestInformerGate(t *testing.T) {
	synced := func(b bool) cache.InformerSynced { return func() bool { return b } }
	tests := map[string]struct {
		nodes, pods bool
		wantErr     string
	}{
		"neither": {wantErr: "waiting for the list of pods from kube-apiserver: it must be reachable, and this account needs list and watch on pods"},
		"pods":    {pods: true, wantErr: "waiting for the list of nodes from kube-apiserver: it must be reachable, and this account needs list and watch on nodes"},
		"both":    {nodes: true, pods: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := (informerGate{{resource: "pods", handled: synced(tc.pods)}, {resource: "nodes", handled: synced(tc.nodes)}}).Check(t.Context()); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.wantErr, got); diff != "" {
				t.Errorf("gate (-want +got):\n%s", diff)
			}
		})
	}
}

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
	t.Cleanup(server.Close)

	for _, f := range newTestInformers(t, server.URL) {
		runUntilEnd(t, f.watch)
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
