// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
)

// countingListener counts the writes to its connections.
type countingListener struct {
	net.Listener
	writes *atomic.Int64
}

func (l countingListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return writing{Conn: connection, before: func() { l.writes.Add(1) }}, nil
}

// TestEventsAreCoalesced publishes an event to watches of one connection: it takes far fewer
// writes to the connection than there are watches.
func TestEventsAreCoalesced(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const watches = 100
	event := make([]byte, 600)
	published := make(chan struct{})
	var waiting sync.WaitGroup
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		waiting.Done()
		<-published
		_, _ = w.Write(event)
	}))
	var writes atomic.Int64
	server.Listener = coalescingListener{countingListener{server.Listener, &writes}}
	server.EnableHTTP2 = true
	//nolint:staticcheck // the generic API server does this, too
	if err := http2.ConfigureServer(server.Config, nil); err != nil {
		t.Fatal(err)
	}
	server.StartTLS()
	defer server.Close()
	var bodies []io.ReadCloser
	waiting.Add(watches)
	for range watches {
		response, err := server.Client().Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		bodies = append(bodies, response.Body)
	}
	waiting.Wait()
	before := writes.Load()
	close(published)
	for _, body := range bodies {
		if n, err := io.Copy(io.Discard, body); n != int64(len(event)) || err != nil {
			t.Fatalf("read %d bytes: %v", n, err)
		}
	}
	// It is about a sixth; without coalescingConn each event has a write of its own.
	if got := writes.Load() - before; got > watches/2 {
		t.Errorf("%d writes for %d events", got, watches)
	}
}
