// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
)

// turns is a server that reads one watch for all of its clients, and writes each
// event to one client after the other: a client that does not read blocks the rest.
type turns struct {
	next http.Handler

	mu      sync.Mutex
	clients map[string][]*turn
}

// turn is a client of a path.
type turn struct {
	mu     sync.Mutex
	writer http.ResponseWriter // nil when it is gone
}

func newTurns(next http.Handler) *turns { return &turns{next: next, clients: map[string][]*turn{}} }

// narrow takes the room from connections that would let a client be slow for long
// before anybody notices.
func (s *turns) narrow(ctx context.Context, c net.Conn) context.Context {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(4 << 10)
	}
	return ctx
}

func (s *turns) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !isWatch(r) {
		s.next.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	me := &turn{writer: w}
	s.mu.Lock()
	first := len(s.clients[r.URL.Path]) == 0
	s.clients[r.URL.Path] = append(s.clients[r.URL.Path], me)
	s.mu.Unlock()
	if first {
		// The events of the first client are those of all. It has no end of its own.
		upstream := r.Clone(context.WithoutCancel(r.Context()))
		go func() {
			// So does a proxy end whose client has gone.
			defer func() { _ = recover() }()
			s.next.ServeHTTP(&broadcast{turns: s, path: r.URL.Path, header: http.Header{}}, upstream)
		}()
	}
	<-r.Context().Done()
	me.mu.Lock()
	defer me.mu.Unlock()
	me.writer = nil
}

// broadcast is where the events of a path are written to.
type broadcast struct {
	turns  *turns
	path   string
	header http.Header
}

var _ http.Flusher = &broadcast{}

func (b *broadcast) Header() http.Header { return b.header }
func (b *broadcast) WriteHeader(int)     {}
func (b *broadcast) Flush()              {}

// Write pads the events with blanks, of which JSON may have any number, so that a
// few of them fill a connection.
func (b *broadcast) Write(events []byte) (int, error) {
	padded := append(bytes.Clone(events), bytes.Repeat([]byte(" "), 64<<10)...)
	b.turns.mu.Lock()
	clients := b.turns.clients[b.path]
	b.turns.mu.Unlock()
	gone := 0
	for _, c := range clients {
		if !c.write(padded) {
			gone++
		}
	}
	if gone == len(clients) {
		return 0, io.ErrClosedPipe
	}
	return len(events), nil
}

func (c *turn) write(b []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writer == nil {
		return false
	}
	_, err := c.writer.Write(b)
	_ = http.NewResponseController(c.writer).Flush()
	return err == nil
}
