// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"crypto/tls"
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
	// maxRequests bounds the requests under way to one source, and so the memory
	// that their answers take. Two replicas stay within the 20 queries that
	// Prometheus evaluates at a time by default.
	maxRequests = 10
	// maxHeaderBytes bounds the headers of an answer.
	maxHeaderBytes = 64 << 10
)

// dialFunc opens a connection.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// connection is the way to a server with certain settings and credentials. It is
// immutable: a change of either makes a new one, and requests under way end on that
// on which they began.
type connection struct {
	settings    *settings
	credentials *credentials
	transport   *http.Transport
	http        *http.Client
	clock       clock.PassiveClock
	// heldOff is when the server, which limits its clients, wants to be asked
	// again, in nanoseconds since 1970; 0 where it does not.
	heldOff atomic.Int64
	// refused is until when 403 is taken for an answer to any method, likewise.
	refused atomic.Int64
}

// connect makes a connection. It takes over the open connections of the one before
// where these were verified, and made themselves known, in the same way.
func connect(cfg *settings, c *credentials, before *connection, dial dialFunc, clk clock.PassiveClock) (*connection, error) {
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
		// Innermost, so that no debugging output shows them.
		WrapTransport: func(rt http.RoundTripper) http.RoundTripper { return &headers{next: rt, headers: c.headers} },
	}, n.transport)
	if err != nil {
		return nil, fmt.Errorf("set up authentication: %w", err)
	}
	n.http = &http.Client{
		Transport: authenticated,
		// Credentials are for the host that the administrator named.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return n, nil
}

func newTransport(cfg *settings, c *credentials, dial dialFunc) (*http.Transport, error) {
	config, err := transport.TLSConfigFor(&transport.Config{TLS: transport.TLSConfig{
		CAData: c.ca, CertData: c.certificate, KeyData: c.key,
		ServerName: cfg.spec.TLS.ServerName, Insecure: cfg.spec.TLS.InsecureSkipVerify,
	}})
	if err != nil {
		return nil, fmt.Errorf("use the certificates from the Secrets of tls: %w", err)
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig:        config,
		DialContext:            dial,
		MaxConnsPerHost:        maxRequests,
		MaxIdleConnsPerHost:    maxRequests,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}), nil
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
			if header.name == "Host" {
				r.Host = header.value
				continue
			}
			r.Header.Set(header.name, header.value)
		}
	}
	return h.next.RoundTrip(r)
}
