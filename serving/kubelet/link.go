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
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	certutil "k8s.io/client-go/util/cert"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// dialFunc opens a connection.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// credentials are what kubelets are shown, and what they are verified with.
type credentials struct {
	// defaultCA is guarded by Source.mu; nothing else here ever changes.
	defaultCA []byte
	dial      dialFunc
	// clientCertificate is nil where the serving component has none.
	clientCertificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
	// authenticated adds the token, read anew when its file changes, and sends
	// the request over the link that the request's context names.
	authenticated http.RoundTripper
}

// newCredentials takes the credentials from a client configuration. Its host,
// CA and server name are kube-apiserver's and are not used.
func newCredentials(config *rest.Config, defaultCA []byte, dial dialFunc) (*credentials, error) {
	c := &credentials{defaultCA: defaultCA, dial: dial}
	if c.dial == nil {
		c.dial = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	if config == nil {
		config = &rest.Config{}
	}
	tc, err := config.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("read the credentials for kubelets: %w", err)
	}
	c.authenticated, err = transport.HTTPWrappersForConfig(tc, overLink{})
	if err != nil {
		return nil, fmt.Errorf("read the credentials for kubelets: %w", err)
	}
	tc.TLS.CAFile, tc.TLS.CAData, tc.TLS.ServerName, tc.TLS.NextProtos = "", nil, "", nil
	// Only the client certificate is taken from the result.
	tc.TLS.Insecure = true
	client, err := transport.TLSConfigFor(tc)
	if err != nil {
		return nil, fmt.Errorf("read the client certificate for kubelets: %w", err)
	}
	c.clientCertificate = client.GetClientCertificate
	return c, nil
}

// defaultCAName is what errors call Options.DefaultCA.
const defaultCAName = "the cluster's CA"

// security is how kubelets are verified. It is immutable.
type security struct {
	*credentials
	mode v1alpha1.KubeletTLSMode
	// roots is nil unless mode is Verify, and empty where there is no authority:
	// in crypto/tls, nil would stand for those of the operating system.
	roots *x509.CertPool
	// unverifiable is why no kubelet at all can be verified, or nil.
	unverifiable *failure
}

func (c *credentials) secure(mode v1alpha1.KubeletTLSMode, caBundle []byte) (*security, error) {
	s := &security{credentials: c, mode: mode}
	switch mode {
	case v1alpha1.KubeletTLSPinOnFirstUse, v1alpha1.KubeletTLSSkip:
		return s, nil
	case v1alpha1.KubeletTLSVerify:
	default:
		return nil, fmt.Errorf("kubelet TLS mode %q: must be Verify, PinOnFirstUse or Skip", mode)
	}
	ca, name := caBundle, "kubeletTLS.caBundle"
	if len(ca) == 0 {
		ca, name = c.defaultCA, defaultCAName
	}
	if len(ca) == 0 {
		// No error: the other settings are good, the authority may yet come, and
		// the failed nodes tell the user.
		s.roots = x509.NewCertPool()
		s.unverifiable = failf(v1alpha1.ScrapeCertificateUntrusted, "there is no certificate authority to verify kubelets with, as the client configuration has none: "+
			"give the kubelets' authority in spec.resourceMetrics.kubeletTLS.caBundle, or choose kubeletTLS.mode: PinOnFirstUse")
		return s, nil
	}
	roots, err := parseCA(ca, name)
	if err != nil {
		return nil, err
	}
	s.roots = roots
	return s, nil
}

// parseCA makes a pool of the certificates in ca, PEM; name is what an error calls it.
func parseCA(ca []byte, name string) (*x509.CertPool, error) {
	certificates, err := certutil.ParseCertsPEM(ca)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	roots := x509.NewCertPool()
	for _, certificate := range certificates {
		roots.AddCert(certificate)
	}
	return roots, nil
}

// link is the way to one node's kubelet: a connection that is kept between
// scrapes, and the certificate that was pinned. Each node has a transport of its
// own, so that no connection ever serves another node or other settings than
// those it was verified for.
type link struct {
	mu        sync.Mutex
	transport *http.Transport
	security  *security
	host      string
	pin       *[sha256.Size]byte
}

// use returns the transport to the host, a new one where the old one does not
// fit any more.
func (l *link) use(s *security, host string) *http.Transport {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.transport != nil && l.security == s && l.host == host {
		return l.transport
	}
	if l.transport != nil {
		l.transport.CloseIdleConnections()
	}
	if l.security != s {
		// Pins are forgotten with the settings they were made under.
		l.pin = nil
	}
	l.security, l.host = s, host
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	l.transport = &http.Transport{
		DialTLSContext:         l.dialer(s, host),
		Protocols:              protocols,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    1,
		MaxResponseHeaderBytes: 64 << 10,
		// Bodies are read past these buffers.
		ReadBufferSize:  2 << 10,
		WriteBufferSize: 2 << 10,
		// No proxy: kubelets are inside the cluster's network. No idle timeout:
		// the next scrape uses the connection, or the kubelet closes it.
	}
	return l.transport
}

// closeIdle closes the connection, at the end of the scrape under way if any.
func (l *link) closeIdle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.transport != nil {
		l.transport.CloseIdleConnections()
	}
}

// dialer connects and verifies. The transport sends nothing before it returns.
func (l *link) dialer(s *security, host string) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		// A transport lets a dial outlive its request; here it must not.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
			defer context.AfterFunc(a.ctx, cancel)() //nolint:contextcheck // the transport took the end of the request away from ctx
		}
		raw, err := s.dial(ctx, network, addr)
		if err != nil {
			return nil, &connectError{err}
		}
		conn := tls.Client(&recordConn{Conn: raw}, l.tlsConfig(s, host))
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, &connectError{err}
		}
		if s.mode == v1alpha1.KubeletTLSPinOnFirstUse {
			// Only now has the peer proved to have the key. Two first contacts
			// at once are not possible: a node has one scrape at a time.
			l.keepPin(s, conn.ConnectionState())
		}
		return conn, nil
	}
}

func (l *link) tlsConfig(s *security, host string) *tls.Config {
	config := &tls.Config{
		MinVersion:           tls.VersionTLS12,
		RootCAs:              s.roots,
		ServerName:           host,
		NextProtos:           []string{"http/1.1"},
		GetClientCertificate: s.clientCertificate,
		// The other modes are an explicit choice of the user's.
		InsecureSkipVerify: s.mode != v1alpha1.KubeletTLSVerify,
	}
	if s.mode == v1alpha1.KubeletTLSPinOnFirstUse {
		config.VerifyConnection = l.checkPin
	}
	return config
}

func (l *link) checkPin(state tls.ConnectionState) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pin == nil {
		return nil
	}
	if got := fingerprint(state); got != *l.pin {
		return &pinError{pinned: *l.pin, got: got}
	}
	return nil
}

func (l *link) keepPin(s *security, state tls.ConnectionState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pin == nil && l.security == s {
		pin := fingerprint(state)
		l.pin = &pin
	}
}

func fingerprint(state tls.ConnectionState) [sha256.Size]byte {
	// A TLS server always shows a certificate.
	return sha256.Sum256(state.PeerCertificates[0].Raw)
}

// pinError is a certificate other than the pinned one.
type pinError struct{ pinned, got [sha256.Size]byte }

func (e *pinError) Error() string {
	return fmt.Sprintf("the certificate's SHA-256 is %x, not %x", e.got, e.pinned)
}

// connectError is an error before the first byte of the request.
type connectError struct{ err error }

func (e *connectError) Error() string { return e.err.Error() }
func (e *connectError) Unwrap() error { return e.err }

// attempt is one request: its context, which also bounds its dial, and the
// transport that carries it.
type attempt struct {
	ctx       context.Context
	transport *http.Transport
}

type attemptKey struct{}

// overLink sends a request over the transport of its attempt.
type overLink struct{}

func (overLink) RoundTrip(r *http.Request) (*http.Response, error) {
	a, ok := r.Context().Value(attemptKey{}).(*attempt)
	if !ok {
		return nil, errors.New("request without a link")
	}
	return a.transport.RoundTrip(r)
}
