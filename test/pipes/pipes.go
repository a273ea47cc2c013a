// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pipes is a network in memory: a synctest bubble's clock goes on while its goroutines wait for it, which it does
// not while they wait for a socket.
package pipes

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Network is a listener and the way to it. A write on a connection waits until it is read.
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

// Dial connects to the listener, whatever the address.
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

// Client returns an HTTP client of the listener, which keeps no connection for later.
func (n *Network) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: n.Dial, DisableKeepAlives: true}}
}
