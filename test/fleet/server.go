// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
)

// server is what all kubelets share: one HTTP server behind all listeners.
type server struct {
	http      *http.Server
	listeners []net.Listener
	running   sync.WaitGroup
	counters  counters
}

// counters since Start.
type counters struct {
	requests, inFlight, answered, refused, bytes, connections, badHandshakes atomic.Int64
}

// Stats of the server since Start.
type Stats struct {
	// Requests for metrics that arrived, whatever became of them.
	Requests int64 `json:"requests"`
	// InFlight requests now.
	InFlight int64 `json:"inFlight"`
	// Answered with 200 and a whole body.
	Answered int64 `json:"answered"`
	// Refused with another status.
	Refused int64 `json:"refused"`
	// Bytes of bodies.
	Bytes int64 `json:"bytes"`
	// Connections open now.
	Connections int64 `json:"connections"`
	// BadHandshakes that clients broke off, most often over the certificate.
	BadHandshakes int64 `json:"badHandshakes"`
}

// Stats at this moment.
func (f *Fleet) Stats() Stats {
	c := &f.server.counters
	return Stats{
		Requests: c.requests.Load(), InFlight: c.inFlight.Load(), Answered: c.answered.Load(), Refused: c.refused.Load(),
		Bytes: c.bytes.Load(), Connections: c.connections.Load(), BadHandshakes: c.badHandshakes.Load(),
	}
}

// Start makes every kubelet listen, and returns once all do. It stops when the
// context ends; Wait waits until it has. A fleet starts once.
func (f *Fleet) Start(ctx context.Context) error {
	if f.server.http != nil {
		return errors.New("starting the fleet: it was started before")
	}
	settings := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		// A resumed session does not show its certificate, and faults are in there.
		SessionTicketsDisabled: true,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return f.certificateOf(hello.Conn.(*conn).node)
		},
	}
	f.server.http = &http.Server{
		Handler:     http.HandlerFunc(f.serve),
		TLSConfig:   settings.Clone(), // the server changes its own when it sets up HTTP/2
		ConnContext: withConnection,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    log.New(handshakeErrors{&f.server.counters.badHandshakes}, "", 0),
	}
	for _, n := range f.nodes {
		l, err := f.listen(n)
		if err != nil {
			for _, open := range f.server.listeners {
				_ = open.Close()
			}
			return err
		}
		f.server.listeners = append(f.server.listeners, l)
	}
	for _, l := range f.server.listeners {
		f.server.running.Go(func() { _ = f.server.http.Serve(tls.NewListener(l, settings)) })
	}
	f.server.running.Go(func() {
		<-ctx.Done()
		_ = f.server.http.Close()
		for _, l := range f.server.listeners {
			_ = l.Close()
		}
	})
	return nil
}

// Wait until the fleet has stopped to listen.
func (f *Fleet) Wait() { f.server.running.Wait() }

func (f *Fleet) listen(n *Node) (net.Listener, error) {
	ip := f.options.IP
	if f.options.IPPerNode {
		// Node 0 is 127.64.0.1: beyond what a machine uses of 127.0.0.0/8.
		var four [4]byte
		binary.BigEndian.PutUint32(four[:], 127<<24|64<<16+uint32(n.index)+1)
		ip = netip.AddrFrom4(four).String()
	}
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return nil, fmt.Errorf("listening for node %s (the limit of open files must exceed three times the nodes): %w", n.Name, err)
	}
	address := l.Addr().(*net.TCPAddr).AddrPort()
	n.address = netip.AddrPortFrom(address.Addr().Unmap(), address.Port())
	return &listener{Listener: l, node: n, counters: &f.server.counters}, nil
}

// listener marks each connection with the node that it arrived at.
type listener struct {
	net.Listener
	node     *Node
	counters *counters
}

func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, node: l.node, counters: l.counters}
	l.counters.connections.Add(1)
	l.node.door.mu.Lock()
	l.node.door.open[c] = struct{}{}
	l.node.door.mu.Unlock()
	return c, nil
}

type conn struct {
	net.Conn
	node     *Node
	counters *counters
	once     sync.Once
}

// Close is called by the server as well as by faults.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.counters.connections.Add(-1)
		c.node.door.mu.Lock()
		delete(c.node.door.open, c)
		c.node.door.mu.Unlock()
	})
	return c.Conn.Close()
}

// reset closes the connection so that the client sees "connection reset by peer".
func (c *conn) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

func (d *door) closeAll() {
	d.mu.Lock()
	open := make([]*conn, 0, len(d.open))
	for c := range d.open {
		open = append(open, c)
	}
	d.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
}

type connectionKey struct{}

func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c.(*tls.Conn).NetConn())
}

func connection(r *http.Request) *conn { return r.Context().Value(connectionKey{}).(*conn) }

// handshakeErrors counts what net/http reports: with certificates that are wrong
// on purpose, each line would be noise.
type handshakeErrors struct{ count *atomic.Int64 }

func (h handshakeErrors) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("TLS handshake error")) {
		h.count.Add(1)
	}
	return len(line), nil
}
