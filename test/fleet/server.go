// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// server is what all kubelets share: one HTTP server behind all listeners.
type server struct {
	http      *http.Server
	listeners []net.Listener
	running   sync.WaitGroup
}

// Start makes every kubelet listen, and returns once all do. It stops when the
// context ends; Wait waits until it has. A fleet starts once.
func (f *Fleet) Start(ctx context.Context) error {
	if f.server.http != nil {
		return errors.New("starting the fleet: it was started before")
	}
	f.byAddress = make(map[netip.AddrPort]*Node, len(f.nodes))
	settings := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return f.nodeAt(hello.Conn).certificate, nil
		},
	}
	f.server.http = &http.Server{
		Handler:     http.HandlerFunc(f.serve),
		TLSConfig:   settings.Clone(), // the server changes its own when it sets up HTTP/2
		ConnContext: withConnection,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    log.New(io.Discard, "", 0), // of clients that leave in the handshake
	}
	for _, n := range f.nodes {
		if err := f.listen(n); err != nil {
			for _, open := range f.server.listeners {
				_ = open.Close()
			}
			return err
		}
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

// listen makes a node listen on loopback, on a port of its own.
func (f *Fleet) listen(n *Node) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for node %s (the limit of open files must exceed three times the nodes): %w", n.Name, err)
	}
	f.server.listeners = append(f.server.listeners, l)
	n.address = addressOf(l.Addr())
	f.byAddress[n.address] = n
	n.certificate, err = kubeletCertificate(f.authority, n.Name, n.address.Addr().String())
	return err
}

func addressOf(a net.Addr) netip.AddrPort {
	address := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(address.Addr().Unmap(), address.Port())
}

// nodeAt is the node that a connection arrived at.
func (f *Fleet) nodeAt(c net.Conn) *Node { return f.byAddress[addressOf(c.LocalAddr())] }

type connectionKey struct{}

func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c.(*tls.Conn).NetConn())
}

func connection(r *http.Request) net.Conn { return r.Context().Value(connectionKey{}).(net.Conn) }

// reset closes the connection so that the client sees "connection reset by peer".
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
