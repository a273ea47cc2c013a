// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// connection keeps the connection to one node's kubelet between scrapes, and the
// pinned certificate. Each node has its own transport, so that a connection is only
// used for the node and the settings for which it was verified.
type connection struct {
	mu        sync.Mutex
	transport *http.Transport
	tls       *kubeletTLS
	host      string
	pin       *[sha256.Size]byte
}

// transportFor returns the transport to a host, replacing that of other settings or
// another host.
func (c *connection) transportFor(s *kubeletTLS, host string) *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport != nil && c.tls == s && c.host == host {
		return c.transport
	}
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
	if c.tls != s {
		// A pin is only valid under the settings that it was made under.
		c.pin = nil
	}
	c.tls, c.host = s, host
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	c.transport = &http.Transport{
		DialTLSContext:         c.dialer(s, host),
		Protocols:              protocols,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    1,
		MaxResponseHeaderBytes: 64 << 10,
		// Large reads of a body bypass these buffers.
		ReadBufferSize:  2 << 10,
		WriteBufferSize: 2 << 10,
		// No proxy, since kubelets are in the cluster's network. No idle timeout,
		// since the next scrape uses the connection or the kubelet closes it.
	}
	return c.transport
}

// closeIdle closes the connection, at the end of the running scrape if any.
func (c *connection) closeIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
}

// dialer returns a function that connects and verifies the kubelet. The transport
// sends nothing before that returns.
func (c *connection) dialer(s *kubeletTLS, host string) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		// A transport lets a dial outlive its request, which is unwanted here.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
			defer context.AfterFunc(a.ctx, cancel)() //nolint:contextcheck // the transport's ctx does not end with the request
		}
		raw, err := s.dial(ctx, network, addr)
		if err != nil {
			return nil, &connectError{err}
		}
		conn := tls.Client(&tlsRecordConn{Conn: raw}, c.tlsConfig(s, host))
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, &connectError{err}
		}
		if s.mode == v1alpha1.KubeletTLSPinOnFirstUse {
			// Only now the peer has proved to have the key. A node has one scrape at
			// a time, so there is a single first connection.
			c.keepPin(s, conn.ConnectionState())
		}
		return conn, nil
	}
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
		pin := fingerprint(state)
		c.pin = &pin
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
type connectError struct{ err error }

func (e *connectError) Error() string { return e.err.Error() }
func (e *connectError) Unwrap() error { return e.err }

// recordHeader is the length of a TLS record's header, which ends with the length
// of the rest in two bytes (RFC 8446, section 5.1).
const recordHeader = 5

// tlsRecordConn is a connection whose reads end at the end of a TLS record.
//
// crypto/tls keeps its input buffer as long as the connection. A read beyond the
// record makes it grow from 17 KB to two records, 38 KB; with thousands of idle
// connections that is more than all samples.
type tlsRecordConn struct {
	net.Conn
	header [recordHeader]byte
	have   int // bytes of the header
	left   int // remaining bytes of the record
}

// Read implements net.Conn.
func (c *tlsRecordConn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return c.Conn.Read(b)
	}
	if c.left > 0 {
		n, err := c.Conn.Read(b[:min(len(b), c.left)])
		c.left -= n
		return n, err
	}
	n, err := c.Conn.Read(b[:min(len(b), recordHeader-c.have)])
	c.have += copy(c.header[c.have:], b[:n])
	if c.have == recordHeader {
		c.left = int(binary.BigEndian.Uint16(c.header[recordHeader-2:]))
		c.have = 0
	}
	return n, err
}
