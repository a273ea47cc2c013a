// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"
	"runtime"
	"time"
)

const (
	// fullWrite is the size of the write buffer of x/net's HTTP/2 server. A write of that much is
	// part of a large response, as is the next one: it gains nothing from waiting.
	fullWrite = 4 << 10
	// keepAlivePeriod is that of the generic API server, which sets it for *net.TCPConn only.
	keepAlivePeriod = 3 * time.Minute
)

// coalescingListener returns connections that coalesce the small frames of their HTTP/2 streams.
type coalescingListener struct{ net.Listener }

// Accept implements net.Listener.
func (l coalescingListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := connection.(*net.TCPConn); ok {
		// On an error the listener's own, shorter period stays.
		_ = tcp.SetKeepAlive(true)
		_ = tcp.SetKeepAlivePeriod(keepAlivePeriod)
	}
	return &coalescingConn{Conn: connection}, nil
}

// coalescingConn lets runnable goroutines run before a small write. The HTTP/2 server flushes
// when it has no more frames, and queues those that arrive during a flush. A new data point
// wakes many watches of a connection at once, and without this the first event is flushed
// before the others are encoded, and so on: a TLS record, a system call and an iteration over
// all streams for each event. On an idle processor the write does not wait.
type coalescingConn struct {
	net.Conn
	// large reports whether the last write was a full one. crypto/tls serializes writes.
	large bool
}

// Write implements net.Conn.
func (c *coalescingConn) Write(p []byte) (int, error) {
	small := len(p) < fullWrite
	// A large frame has a full record and a small one.
	if small && !c.large {
		runtime.Gosched()
	}
	c.large = !small
	return c.Conn.Write(p)
}
