// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugincluster answers the requests of plugin/ over HTTP as kube-apiserver does, for
// unit tests, from a World that they describe.
package plugincluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
)

// Host is what messages call the cluster, whatever the port of the test.
const Host = "https://cluster.example:6443"

// Cluster is a kube-apiserver whose world can be changed at any time.
type Cluster struct {
	// Config points to it.
	Config *rest.Config
	// Connection is the plugin's.
	Connection *connection.Cluster

	mu      sync.Mutex
	world   *World
	changed chan struct{}
	watches chan struct{}
}

// Start serves the world until the test ends.
func Start(t *testing.T, world *World) *Cluster {
	t.Helper()
	c := &Cluster{world: world, changed: make(chan struct{}), watches: make(chan struct{}, 100)}
	server := httptest.NewServer(c)
	t.Cleanup(func() {
		// Watches and hanging requests would keep it from closing.
		server.CloseClientConnections()
		server.Close()
	})
	c.Config = &rest.Config{Host: server.URL}
	// A clock that is wrong here must not matter: the Date header tells the time.
	wrong := clocktesting.NewFakePassiveClock(world.Now.Add(-42 * time.Minute))
	connected, err := connection.ForConfig(c.Config, t.Output(), wrong)
	if err != nil {
		t.Fatal(err)
	}
	connected.Host = Host
	c.Connection = connected
	return c
}

// Change changes the world and sends an event to every watch.
func (c *Cluster) Change(change func(*World)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c.world)
	close(c.changed)
	c.changed = make(chan struct{})
}

// AwaitWatch returns once a watch has begun that was not awaited yet.
func (c *Cluster) AwaitWatch(t *testing.T) {
	t.Helper()
	select {
	case <-c.watches:
	case <-t.Context().Done():
		t.Fatal("no watch began")
	}
}

// ServeHTTP implements http.Handler.
func (c *Cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	response, changed, now := c.world.respond(r), c.changed, c.world.Now
	c.mu.Unlock()
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Type", response.kind)
	switch {
	case response.hangs:
		<-r.Context().Done()
		return
	case response.code == http.StatusOK && r.URL.Query().Get("watch") != "":
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		c.watches <- struct{}{}
		select {
		case <-changed:
			// The object does not matter: the plugin looks for itself.
			_, _ = fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":%q}}`+"\n", response.watched.Kind, response.watched.APIVersion)
		case <-r.Context().Done():
		}
		return
	}
	w.WriteHeader(response.code)
	_, _ = w.Write(response.body)
}
