// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/pipes"
)

// TestAbort frees the goroutine that writes to a client that does not read.
func TestAbort(t *testing.T) {
	w := newWorld(t)
	w.hub.Apply(Settings{BookmarkInterval: time.Hour, StallTimeout: time.Minute})
	watching, returned := make(chan struct{}), make(chan struct{})
	network := pipes.New()
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		// As the API server's watch handler, which begins with the headers.
		Handler: WithRequestMetadata(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			defer close(returned)
			watcher, err := w.hub.Watch(r.Context(), Request{Metrics: w.metrics, Abort: AbortFrom(r.Context())})
			if err != nil {
				t.Error(err)
				return
			}
			defer watcher.Stop()
			close(watching)
			if err := http.NewResponseController(rw).Flush(); err == nil {
				t.Error("the headers were written to a client that does not read")
			}
		})),
	}
	go func() { _ = server.Serve(network) }()
	defer func() { _ = server.Close() }()

	client, err := network.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if _, err := io.WriteString(client, "GET /pods?watch=true HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-watching
	w.pass(2 * time.Minute)
	<-returned
	if watchers, _ := w.hub.Watchers(); watchers != 0 {
		t.Errorf("%d watchers left", watchers)
	}
}

// TestAbortAfterTheAnswer must not touch a writer that is no longer the handler's.
func TestAbortAfterTheAnswer(t *testing.T) {
	var abort func()
	WithRequestMetadata(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { abort = AbortFrom(r.Context()) })).
		ServeHTTP(nil, httptest.NewRequest(http.MethodGet, "/", nil))
	abort()
	if AbortFrom(context.Background()) != nil {
		t.Error("a request that did not come through WithRequestMetadata can be aborted")
	}
}
