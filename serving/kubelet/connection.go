// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// maxIdle is the interval from which connections are not kept between scrapes: a kubelet
// closes those that are idle for 90 s.
const maxIdle = 90 * time.Second

// expiresSoon is how long before its end a pinned certificate is reported.
const expiresSoon = 30 * 24 * time.Hour

// connection keeps the connection to one node's kubelet between scrapes, and the
// pinned certificate. A connection is only used for the node, the address and the
// settings for which it was verified.
type connection struct {
	mu sync.Mutex
	// idle is the open connection that no scrape uses, or nil.
	idle *tlsConn
	// pin is that of the first connection under the settings tls that no CA verified, and expires the end
	// of that certificate; verified reports that a CA verified one over which samples came.
	pin      *[sha256.Size]byte
	expires  time.Time
	verified bool
	tls      *kubeletTLS
}

// tlsConn is a verified connection to a kubelet.
type tlsConn struct {
	*tls.Conn
	record   *recordConn
	settings *kubeletTLS
	// address is HOST:PORT.
	address string
	// pinned: the certificate is the pinned one, and no CA verified it.
	pinned bool
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
		c.tls, c.pin, c.verified = s, nil, false
	}
	idle := c.idle
	c.idle = nil
	switch {
	case idle == nil:
		return nil
	case idle.settings == s && idle.address == address && (!idle.pinned || s.pins()) && idle.SetDeadline(deadline) == nil && !hasInput(idle.record.Conn):
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

// dial connects to the kubelet of an attempt and verifies it until the deadline. Its errors are a
// connectError.
func (c *connection) dial(ctx context.Context, a *attempt, address string) (*tlsConn, error) {
	ctx, cancel := context.WithDeadline(ctx, a.deadline)
	defer cancel()
	connectCtx, connected := context.WithDeadline(ctx, a.connectBy)
	raw, err := a.settings.dial(connectCtx, "tcp", address)
	connected()
	if err != nil {
		return nil, &connectError{&dialError{err}}
	}
	record := &recordConn{Conn: raw, buffer: a.input[:]}
	conn := &tlsConn{record: record, settings: a.settings, address: address}
	conn.Conn = tls.Client(record, c.tlsConfig(conn, a.node, a.host))
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, &connectError{err}
	}
	// Only now the peer has proved to have the key. A node has one scrape at
	// a time, so there is a single first connection.
	c.accept(conn)
	if err := conn.SetDeadline(a.deadline); err != nil {
		_ = conn.Close()
		return nil, &connectError{err}
	}
	return conn, nil
}

// tlsConfig returns the configuration for a new connection. The handshake sets its pinned.
func (c *connection) tlsConfig(conn *tlsConn, node *Node, host string) *tls.Config {
	s := conn.settings
	config := &tls.Config{
		MinVersion:           tls.VersionTLS12,
		RootCAs:              s.roots,
		ServerName:           host,
		NextProtos:           []string{"http/1.1"},
		GetClientCertificate: s.clientCertificate,
		// VerifyConnection verifies in the other modes, but for Skip, the user's explicit choice.
		InsecureSkipVerify: s.mode != v1alpha1.KubeletTLSVerify,
	}
	switch s.mode {
	case v1alpha1.KubeletTLSVerifyOrPin:
		config.VerifyConnection = func(state tls.ConnectionState) error {
			err := verify(state.PeerCertificates, s.roots, host)
			switch {
			case err == nil || !node.signedItself(state.PeerCertificates):
				return err
			case !s.pins():
				// Not that it is for another address, which is no way out.
				return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: x509.UnknownAuthorityError{Cert: state.PeerCertificates[1]}}
			}
			conn.pinned = true
			return c.checkPin(state)
		}
	case v1alpha1.KubeletTLSPinOnFirstUse:
		conn.pinned = true
		config.VerifyConnection = c.checkPin
	}
	return config
}

// verify verifies a certificate, which others may follow, as crypto/tls does.
func verify(certificates []*x509.Certificate, roots *x509.CertPool, host string) error {
	intermediates := x509.NewCertPool()
	for _, c := range certificates[1:] {
		intermediates.AddCert(c)
	}
	_, err := certificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, DNSName: host})
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: certificates, Err: err}
	}
	return nil
}

// signedItself reports whether the certificates are valid, for the node, and of the form that a
// kubelet makes if it is given none (GenerateSelfSignedCertKey of k8s.io/client-go/util/cert): one
// for its host name, and that of an authority which is made for this one alone.
func (n *Node) signedItself(certificates []*x509.Certificate) bool {
	if len(certificates) != 2 {
		return false
	}
	leaf, ca := certificates[0], certificates[1]
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	names := []string{n.Name}
	// The node's name is another one if a cloud provider gives it. One address: the kubelet writes them, and checks cost time.
	if i := slices.IndexFunc(n.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeHostName && validAddress(a) }); i >= 0 {
		names = append(names, strings.ToLower(n.Addresses[i].Address))
	}
	return ca.CheckSignatureFrom(ca) == nil && slices.ContainsFunc(names, func(name string) bool {
		return strings.HasPrefix(leaf.Subject.CommonName, name+"@") && strings.HasPrefix(ca.Subject.CommonName, name+"-ca@") &&
			verify(certificates, roots, name) == nil
	})
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

// accept pins the first certificate, unless a CA verified it.
func (c *connection) accept(conn *tlsConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn.pinned && c.pin == nil && c.tls == conn.settings {
		state := conn.ConnectionState()
		c.pin, c.expires = new(fingerprint(state)), state.PeerCertificates[0].NotAfter
	}
}

// confirm records whether a CA verified a connection over which samples came. The handshake alone proves nothing: a node's
// status may lead to any server with a certificate of the CA, such as kube-apiserver.
func (c *connection) confirm(conn *tlsConn) {
	if conn.pinned || conn.settings.roots == nil {
		return // a pin, or Skip
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	conn.settings.verified.Store(true)
	c.verified = c.tls == conn.settings
}

// trust reports whether a CA verified a connection under the settings, whether a certificate is pinned, and when that one
// expires.
func (c *connection) trust(s *kubeletTLS) (verified, pinned bool, expires time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tls == s && c.verified, c.tls == s && c.pin != nil && s.pins(), c.expires
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
