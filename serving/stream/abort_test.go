// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// pipeListener accepts one connection, on which a write waits until it is read.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// TestAbort frees the goroutine that writes to a client that does not read.
func TestAbort(t *testing.T) {
	w := newWorld(t)
	w.hub.Apply(Settings{BookmarkInterval: time.Hour, StallTimeout: time.Minute})
	handler, watching, returned := serveHub(t, w.hub).Config.Handler, make(chan struct{}), make(chan struct{})
	listener := &pipeListener{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: WithRequestFacts(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			defer close(returned)
			handler.ServeHTTP(announcing{rw, sync.OnceFunc(func() { close(watching) })}, r)
		})),
	}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()

	client, conn := net.Pipe()
	defer func() { _ = client.Close() }()
	listener.conns <- conn
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

// announcing tells when the first byte is about to be written.
type announcing struct {
	http.ResponseWriter
	begun func()
}

func (a announcing) Flush() {
	a.begun()
	_ = http.NewResponseController(a.ResponseWriter).Flush()
}

// TestAbortAfterTheAnswer must not touch a writer that is no longer the handler's.
func TestAbortAfterTheAnswer(t *testing.T) {
	var abort func()
	WithRequestFacts(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { abort = AbortFrom(r.Context()) })).
		ServeHTTP(nil, httptest.NewRequest(http.MethodGet, "/", nil))
	abort()
	if AbortFrom(context.Background()) != nil {
		t.Error("a request that did not come through WithRequestFacts can be aborted")
	}
}
