// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package sourceclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

const (
	// DefaultMaxRequests has two replicas stay within the 20 concurrent queries that Prometheus
	// allows by default.
	DefaultMaxRequests = 10
	// maxHeaderBytes limits the headers of a response.
	maxHeaderBytes = 64 << 10
)

// Dial opens a connection.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// Connection is an HTTP client with a certain Spec and credentials, which do not change: a new one replaces
// it when either does, and running requests end on the old one.
type Connection struct {
	Spec *Spec
	HTTP *http.Client

	credentials *credentials
	transport   *http.Transport
}

// newConnection reuses the transport of the connection before if its TLS settings are the same.
func newConnection(spec *Spec, c *credentials, before *Connection, o *Options) (*Connection, error) {
	n := &Connection{Spec: spec, credentials: c}
	if before != nil && before.credentials.sameTLS(c) && before.Spec.Endpoint == spec.Endpoint &&
		before.Spec.TLS.ServerName == spec.TLS.ServerName &&
		before.Spec.TLS.InsecureSkipTLSVerify == spec.TLS.InsecureSkipTLSVerify {
		n.transport = before.transport
	} else {
		t, err := newTransport(spec, c, o)
		if err != nil {
			return nil, err
		}
		n.transport = t
	}
	authenticated, err := transport.HTTPWrappersForConfig(&transport.Config{
		UserAgent:   rest.DefaultKubernetesUserAgent(),
		BearerToken: c.token,
		Username:    c.username,
		Password:    c.password,
		// Innermost, so that debugging output does not show them.
		WrapTransport: func(rt http.RoundTripper) http.RoundTripper { return &headers{next: rt, headers: c.headers} },
	}, n.transport)
	if err != nil {
		return nil, fmt.Errorf("set up authentication: %w", err)
	}
	n.HTTP = &http.Client{Transport: authenticated, CheckRedirect: refuseRedirects}
	return n, nil
}

// Redact replaces credentials in a text.
func (n *Connection) Redact(text string) string { return n.credentials.redact(text) }

// MaxWarnings limits the warnings of a result.
const MaxWarnings = 5

// Warnings returns the first warnings of an answer, truncated and redacted.
func (n *Connection) Warnings(all []string) []string {
	var first []string
	for _, w := range all[:min(len(all), MaxWarnings)] {
		first = append(first, text.Line(n.Redact(w), MaxMessage))
	}
	return first
}

// Excerpt returns the beginning of the body of an error response, redacted. Read errors do not matter, as
// there is the status.
func (n *Connection) Excerpt(r io.Reader) string { return n.credentials.excerpt(r) }

// Unauthorized is called when a request that began at an instant was answered with 401: a renewed token replaces an
// older one.
func (n *Connection) Unauthorized(began time.Time) {
	if n.credentials.tokens != nil {
		n.credentials.tokens.ResetTokenOlderThan(began)
	}
}

// refuseRedirects keeps credentials from being sent to another host.
func refuseRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func newTransport(spec *Spec, c *credentials, o *Options) (*http.Transport, error) {
	config, err := transport.TLSConfigFor(&transport.Config{TLS: transport.TLSConfig{
		CAData: c.ca, CertData: c.certificate, KeyData: c.key,
		ServerName: spec.TLS.ServerName, Insecure: spec.TLS.InsecureSkipTLSVerify,
	}})
	if err != nil {
		return nil, fmt.Errorf("use the certificates that tls names: %w", err)
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if len(c.ca) == 0 && len(bytes.TrimSpace(c.extraCA)) > 0 {
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			return nil, fmt.Errorf("read the public CA certificates: %w", err)
		}
		if !config.RootCAs.AppendCertsFromPEM(c.extraCA) {
			return nil, errors.New("no CA certificate in PEM under the key of the ConfigMap that serving.caConfigMapKeyRef names, nor in tls: correct them")
		}
	}
	t := &http.Transport{
		TLSClientConfig:        config,
		DialContext:            o.Dial,
		MaxConnsPerHost:        o.MaxRequests,
		MaxIdleConnsPerHost:    o.MaxRequests,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	if spec.Direct {
		config.NextProtos = []string{"http/1.1"}
		t.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	return utilnet.SetTransportDefaults(t), nil
}

// headers adds headers to each request.
type headers struct {
	next    http.RoundTripper
	headers []header
}

func (h *headers) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(h.headers) > 0 {
		r = r.Clone(r.Context())
		for _, header := range h.headers {
			r.Header.Set(header.name, header.value)
		}
	}
	return h.next.RoundTrip(r)
}
