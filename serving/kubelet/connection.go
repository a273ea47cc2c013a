// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// maxIdle is the interval from which connections are not kept between scrapes: a kubelet
// closes those that are idle for 90 s.
const maxIdle = 90 * time.Second

// connection keeps the connection to one node's kubelet between scrapes, and the
// pinned certificate. A connection is only used for the node, the address and the
// settings for which it was verified.
type connection struct {
	mu sync.Mutex
	// idle is the open connection that no scrape uses, or nil.
	idle *tlsConn
	// pin is that of the first connection under the settings tls.
	pin *[sha256.Size]byte
	tls *kubeletTLS
}

// tlsConn is a verified connection to a kubelet.
type tlsConn struct {
	*tls.Conn
	record   *recordConn
	settings *kubeletTLS
	// address is HOST:PORT.
	address string
}

// Close closes the connection. It sends no TLS alert, which could block.
func (c *tlsConn) Close() error { return c.record.Conn.Close() }

// isDrained reports whether nothing was received that was not read. The buffer must have
// been released.
func (c *tlsConn) isDrained() bool {
	// The end of a record may be decrypted and not read.
	n, err := c.Read(make([]byte, 1))
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
}

// take returns the idle connection for a scrape, or nil if there is none that is
// verified for the address under the settings and still open.
func (c *connection) take(s *kubeletTLS, address string, deadline time.Time) *tlsConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tls != s {
		// A pin is only valid under the settings that it was made under.
		c.tls, c.pin = s, nil
	}
	idle := c.idle
	c.idle = nil
	switch {
	case idle == nil:
		return nil
	case idle.settings == s && idle.address == address && idle.SetDeadline(deadline) == nil && !hasInput(idle.record.Conn):
		return idle
	}
	_ = idle.Close()
	return nil
}

// keep makes a connection idle.
func (c *connection) keep(conn *tlsConn) {
	// Its end would wake a processor for nothing.
	_ = conn.SetDeadline(time.Time{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = conn
}

// closeIdle closes the idle connection, if any.
func (c *connection) closeIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle != nil {
		_ = c.idle.Close()
		c.idle = nil
	}
}

// dial connects to the kubelet and verifies it until a deadline. Its errors are a
// connectError.
func (c *connection) dial(ctx context.Context, s *kubeletTLS, host, address string, buffer []byte, deadline time.Time) (*tlsConn, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	connectCtx, connected := connectContext(ctx)
	raw, err := s.dial(connectCtx, "tcp", address)
	connected()
	if err != nil {
		return nil, &connectError{&dialError{err}}
	}
	record := &recordConn{Conn: raw, buffer: buffer}
	conn := &tlsConn{Conn: tls.Client(record, c.tlsConfig(s, host)), record: record, settings: s, address: address}
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, &connectError{err}
	}
	if s.mode == v1alpha1.KubeletTLSPinOnFirstUse {
		// Only now the peer has proved to have the key. A node has one scrape at
		// a time, so there is a single first connection.
		c.keepPin(s, conn.ConnectionState())
	}
	if err := conn.SetDeadline(deadline); err != nil {
		_ = conn.Close()
		return nil, &connectError{err}
	}
	return conn, nil
}

func (c *connection) tlsConfig(s *kubeletTLS, host string) *tls.Config {
	config := &tls.Config{
		MinVersion:           tls.VersionTLS12,
		RootCAs:              s.roots,
		ServerName:           host,
		NextProtos:           []string{"http/1.1"},
		GetClientCertificate: s.clientCertificate,
		// The other modes are the user's explicit choice.
		InsecureSkipVerify: s.mode != v1alpha1.KubeletTLSVerify,
	}
	if s.mode == v1alpha1.KubeletTLSPinOnFirstUse {
		config.VerifyConnection = c.checkPin
	}
	return config
}

func (c *connection) checkPin(state tls.ConnectionState) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pin == nil {
		return nil
	}
	if got := fingerprint(state); got != *c.pin {
		return &pinError{pinned: *c.pin, got: got}
	}
	return nil
}

func (c *connection) keepPin(s *kubeletTLS, state tls.ConnectionState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pin == nil && c.tls == s {
		c.pin = new(fingerprint(state))
	}
}

func fingerprint(state tls.ConnectionState) [sha256.Size]byte {
	// A TLS server always has a certificate.
	return sha256.Sum256(state.PeerCertificates[0].Raw)
}

// pinError is the error of a certificate that is not the pinned one.
type pinError struct{ pinned, got [sha256.Size]byte }

func (e *pinError) Error() string {
	return fmt.Sprintf("the certificate's SHA-256 is %x, not %x", e.got, e.pinned)
}

// connectError is an error before the request was sent.
type connectError struct{ error }

func (e *connectError) Unwrap() error { return e.error }
