// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pipes is an in-memory network for synctest bubbles, whose clock stops while a goroutine waits for a socket.
package pipes

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Network is a listener and its dialer. A write on a connection blocks until it is read.
type Network struct {
	dialed chan net.Conn
	closed chan struct{}
	close  sync.Once
}

// New returns a network without connections.
func New() *Network { return &Network{dialed: make(chan net.Conn), closed: make(chan struct{})} }

// Accept implements net.Listener.
func (n *Network) Accept() (net.Conn, error) {
	select {
	case c := <-n.dialed:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (n *Network) Close() error {
	n.close.Do(func() { close(n.closed) })
	return nil
}

// Addr implements net.Listener.
func (n *Network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// Dial connects to the listener. It ignores the address.
func (n *Network) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case n.dialed <- far:
		return near, nil
	case <-n.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Client returns an HTTP client of the listener, without keep-alive.
func (n *Network) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: n.Dial, DisableKeepAlives: true}}
}
