// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"
)

const (
	// maxRequests limits concurrent requests to a source, and so the memory for their
	// responses. Two replicas stay within the 20 concurrent queries that Prometheus allows
	// by default.
	maxRequests = 10
	// maxHeaderBytes limits the headers of a response.
	maxHeaderBytes = 64 << 10
)

type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// connection is an HTTP client with certain settings and credentials, which do not change: a new
// one replaces it when either does, and running requests end on the old one.
type connection struct {
	settings    *settings
	credentials *credentials
	transport   *http.Transport
	http        *http.Client
	clock       clock.PassiveClock
	// retryAt are the times of the last Retry-After in Unix nanoseconds, 0 for none: of lookups of
	// series, and of probes. That of a query is for its tenant, which the Evaluator holds.
	retryAt [purposes]atomic.Int64
	// postOnlyUntil is until when GET is not tried after a 403, in Unix nanoseconds.
	postOnlyUntil atomic.Int64
}

// newConnection reuses the transport of the connection before if its TLS settings are the same.
func newConnection(cfg *settings, c *credentials, before *connection, dial dialFunc, clk clock.PassiveClock) (*connection, error) {
	n := &connection{settings: cfg, credentials: c, clock: clk}
	if before != nil && before.credentials.sameTLS(c) && before.settings.endpoint == cfg.endpoint &&
		before.settings.spec.TLS.ServerName == cfg.spec.TLS.ServerName &&
		before.settings.spec.TLS.InsecureSkipVerify == cfg.spec.TLS.InsecureSkipVerify {
		n.transport = before.transport
	} else {
		t, err := newTransport(cfg, c, dial)
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
		WrapTransport: func(rt http.RoundTripper) http.RoundTripper { return &headers{next: rt, credentials: c} },
	}, n.transport)
	if err != nil {
		return nil, fmt.Errorf("set up authentication: %w", err)
	}
	n.http = &http.Client{Transport: authenticated, CheckRedirect: refuseRedirects}
	return n, nil
}

// refuseRedirects keeps credentials from being sent to another host.
func refuseRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func newTransport(cfg *settings, c *credentials, dial dialFunc) (*http.Transport, error) {
	config, err := transport.TLSConfigFor(&transport.Config{TLS: transport.TLSConfig{
		CAData: c.ca, CertData: c.certificate, KeyData: c.key,
		ServerName: cfg.spec.TLS.ServerName, Insecure: cfg.spec.TLS.InsecureSkipVerify,
	}})
	if err != nil {
		return nil, fmt.Errorf("use the certificates that tls names: %w", err)
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if len(c.ca) == 0 && len(c.extraCA) > 0 {
		config.RootCAs = publicRoots()
		if !config.RootCAs.AppendCertsFromPEM(c.extraCA) {
			return nil, errors.New("the key of the ConfigMap that serving.caConfigMap names has no CA certificate in PEM: correct it")
		}
	}
	return transportWith(config, dial), nil
}

// publicRoots returns the public authorities, or those that the environment names.
func publicRoots() *x509.CertPool {
	roots, err := x509.SystemCertPool()
	if err != nil {
		return x509.NewCertPool()
	}
	return roots
}

// transportWith returns a transport with a TLS configuration and our limits.
func transportWith(config *tls.Config, dial dialFunc) *http.Transport {
	return utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig:        config,
		DialContext:            dial,
		MaxConnsPerHost:        maxRequests,
		MaxIdleConnsPerHost:    maxRequests,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxHeaderBytes,
	})
}

// headers adds the headers of credentials to each request.
type headers struct {
	next        http.RoundTripper
	credentials *credentials
}

func (h *headers) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(h.credentials.headers) > 0 {
		r = r.Clone(r.Context())
		for _, header := range h.credentials.headers {
			r.Header.Set(header.name, header.value)
		}
	}
	return h.next.RoundTrip(r)
}
