// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/metricsbackend/metrics-backend-operator/serving/accounttoken"
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
		WrapTransport: func(rt http.RoundTripper) http.RoundTripper { return &headers{next: rt, headers: c.headers} },
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
	if len(c.ca) == 0 && len(bytes.TrimSpace(c.extraCA)) > 0 {
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			return nil, fmt.Errorf("read the public CA certificates: %w", err)
		}
		if !config.RootCAs.AppendCertsFromPEM(c.extraCA) {
			return nil, errors.New("no CA certificate in PEM under the key of the ConfigMap that serving.caConfigMap names, nor in tls: correct them")
		}
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
			r.Header.Set(header.name, header.value)
		}
	}
	return h.next.RoundTrip(r)
}

// issuedTokens returns the tokens of the authorization server in settings for a client. They are requested in
// the background while Run runs: a server that does not answer delays no request. mu is held.
func (s *Source) issuedTokens(client *credentials) transport.ResettableTokenSource {
	if s.issued == nil || !s.client.equal(client) {
		s.stop()
		spec := s.settings.spec.Authentication.OAuth2
		u, _ := url.Parse(spec.TokenURL) // newSettings has parsed it.
		client.initRedactor()
		config := &clientcredentials.Config{ClientID: client.username, ClientSecret: client.password, TokenURL: spec.TokenURL, Scopes: spec.Scopes}
		s.client, s.issued = client, accounttoken.NewForIssuer("the authorization server "+u.Host, func(ctx context.Context) (*oauth2.Token, error) {
			return s.requestToken(ctx, config, client)
		}, s.options.Clock, rand.Float64)
		s.stop = s.requesting.Go(s.issued.Run)
	}
	return s.issued
}

// requestToken requests a token of an authorization server, and then a probe. The server may be elsewhere than the
// source: it is always verified, also by public authorities, and gets no client certificate. oauth2 reads at
// most 1 MiB of an answer.
func (s *Source) requestToken(ctx context.Context, config *clientcredentials.Config, client *credentials) (*oauth2.Token, error) {
	own, err := newTransport(&settings{spec: &v1alpha1.PrometheusSource{}}, &credentials{extraCA: client.extraCA}, s.options.Dial)
	if err != nil {
		return nil, err
	}
	defer own.CloseIdleConnections()
	token, err := config.Token(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: own, CheckRedirect: refuseRedirects}))
	if err != nil {
		// It may repeat the request.
		return nil, errors.New(text.Line(client.redact(err.Error()), maxMessage))
	}
	// Negative without an Expiry.
	token.ExpiresIn = int64(time.Until(token.Expiry).Round(time.Second).Seconds())
	s.health.probeRequested.Set()
	return token, nil
}
