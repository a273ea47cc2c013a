// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

func TestSync(t *testing.T) {
	for name, c := range map[string]struct {
		fakeServer *fakeServer
		status     string
		held       string
		err        func(error) bool
	}{
		"watch is served": {
			&fakeServer{served: map[string]string{"v1": both}, pods: map[string]int64{"a": 10}}, "v1 Watching", "a=10m", nil,
		},
		"watch is not": {
			&fakeServer{served: map[string]string{"v1beta1": noWatch}, pods: map[string]int64{"a": 10}},
			"v1beta1 Polling: the server names no watch for pods in metrics.k8s.io/v1beta1", "a=10m", nil,
		},
		"nothing is served": {
			new(fakeServer), " Starting", "nothing", func(err error) bool { return errors.Is(err, ErrNotServed) },
		},
		"forbidden": {
			&fakeServer{served: map[string]string{"v1": both}, fail: listsOnly(refuse(403))}, " Starting", "nothing", apierrors.IsForbidden,
		},
		"unavailable": {
			&fakeServer{served: map[string]string{"v1": both}, fail: refuse(503)}, " Starting", "nothing", apierrors.IsServiceUnavailable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.fakeServer)
			defer server.Close()
			watcher, err := Pods(&rest.Config{Host: server.URL}, "ns", Options{})
			if err != nil {
				t.Fatal(err)
			}
			switch err := watcher.Sync(t.Context()); {
			case c.err == nil && err != nil, c.err != nil && (err == nil || !c.err(err)):
				t.Errorf("error %v", err)
			}
			wantStatus(t, watcher, c.status)
			wantHeld(t, watcher, c.held)
		})
	}
}

// Run continues from Sync without repeating its requests.
func TestSyncThenRun(t *testing.T) {
	opened := make(chan struct{})
	w := &fakeServer{served: map[string]string{"v1": both}, pods: map[string]int64{"a": 10}}
	w.watch = func(_ http.ResponseWriter, r *http.Request) {
		close(opened)
		<-r.Context().Done()
	}
	server := httptest.NewServer(w)
	defer server.Close()
	watcher, err := Pods(&rest.Config{Host: server.URL}, "ns", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := watcher.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- watcher.Run(ctx) }()
	<-opened
	if err := watcher.Sync(ctx); err == nil {
		t.Error("Sync while it runs is no error")
	}
	if change := <-watcher.Changes(); change.Type != Updated || change.Object.Name != "a" {
		t.Errorf("of what Sync found, Changes tells %+v", change)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var asked []string
	for _, request := range w.requests() {
		asked = append(asked, strings.Fields(request)[1])
	}
	if diff := cmp.Diff([]string{"discover", "list", "watch"}, asked); diff != "" {
		t.Error(diff)
	}
}
