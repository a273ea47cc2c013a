// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
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
	if o := cfg.spec.Authentication.OAuth2; o != nil {
		// Outermost: with its header, Username and Password, which are not for the source, are not sent.
		authenticated = &oauth2.Transport{Base: authenticated, Source: issuedTokens(o, c, n.transport)}
	}
	n.http = &http.Client{Transport: authenticated, CheckRedirect: refuseRedirects}
	return n, nil
}

// issuedTokens returns the tokens of an authorization server. It may be elsewhere than the source: it
// is always verified, also by public authorities, and gets no client certificate. oauth2 reads at most
// 1 MiB of an answer.
func issuedTokens(spec *v1alpha1.SourceOAuth2, c *credentials, source *http.Transport) oauth2.TokenSource {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	roots.AppendCertsFromPEM(c.ca)
	own := source.Clone()
	own.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	// A short timeout, since all requests to the source wait for the token.
	client := &http.Client{Transport: own, CheckRedirect: refuseRedirects, Timeout: 5 * time.Second}
	config := clientcredentials.Config{ClientID: c.username, ClientSecret: c.password, TokenURL: spec.TokenURL, Scopes: spec.Scopes}
	return config.TokenSource(context.WithValue(context.Background(), oauth2.HTTPClient, client))
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
	return utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig:        config,
		DialContext:            dial,
		MaxConnsPerHost:        maxRequests,
		MaxIdleConnsPerHost:    maxRequests,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}), nil
}

// headers adds the headers of credentials to each request.
type headers struct {
	next        http.RoundTripper
	credentials *credentials
}

func (h *headers) RoundTrip(r *http.Request) (*http.Response, error) {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && token != h.credentials.token {
		h.credentials.initRedactor(token)
	}
	if len(h.credentials.headers) > 0 {
		r = r.Clone(r.Context())
		for _, header := range h.credentials.headers {
			r.Header.Set(header.name, header.value)
		}
	}
	return h.next.RoundTrip(r)
}
