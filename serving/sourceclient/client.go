// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sourceclient is the HTTP client of one source: its address, certificates and credentials, which are in
// Secrets and ConfigMaps that may change at any time, and what its failures mean.
package sourceclient

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"golang.org/x/sync/semaphore"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/rungroup"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/metricsbackend/metrics-backend-operator/serving/accounttoken"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// Options configure a Client for its lifetime.
type Options struct {
	// Name in spec.sources.
	Name string
	// Secrets returns the credentials; nil if the spec references none.
	Secrets Secrets
	// ConfigMaps returns the CA certificates in ConfigMaps; nil if the spec references none.
	ConfigMaps ConfigMaps
	// ExtraCA returns serving.caConfigMapKeyRef: where CA certificates are that are trusted beside the public ones; nil
	// for none.
	ExtraCA func() *v1alpha1.ConfigMapKeyReference
	// Tokens returns tokens of the ServiceAccount for sources; nil if the spec needs none.
	Tokens Tokens
	Clock  clock.WithTicker
	// Dial opens connections; nil for the default.
	Dial Dial
	// MaxRequests limits concurrent requests, and so the memory for their responses; 0 means DefaultMaxRequests.
	MaxRequests int
}

// Spec is a source as far as connections to it depend on it. It is valid.
type Spec struct {
	// Endpoint is the URL before the paths of the API, without a slash at the end.
	Endpoint string
	// Parameters are added to each request, encoded, with & before each.
	Parameters     string
	TLS            v1alpha1.SourceTLS
	Authentication v1alpha1.SourceAuthentication
	Headers        []v1alpha1.SourceHeader
	// Direct says that requests use no proxy, and HTTP/1.1: each of concurrent requests has a connection of its own,
	// so that they spread over the replicas of a Service.
	Direct bool
}

// sameData reports whether both are for the same server and tenant, and have the same parameters,
// which may select series, as far as the spec shows: contents of Secrets may rotate.
func (s *Spec) sameData(o *Spec) bool {
	return s.Endpoint == o.Endpoint && s.Parameters == o.Parameters && slices.EqualFunc(s.Headers, o.Headers, func(a, b v1alpha1.SourceHeader) bool {
		return a.Name == b.Name && a.Value == b.Value
	})
}

// Client is an HTTP client of a source. Its methods may be called at any time, also before Run.
type Client struct {
	options Options
	// tokenIssued is called when an authorization server has issued a token.
	tokenIssued func()
	// requesting requests tokens of the authorization server.
	requesting rungroup.Group
	// slots limits concurrent requests over all connections.
	slots *semaphore.Weighted

	mu         sync.Mutex
	spec       *Spec
	connection *Connection
	// issued are the tokens of the authorization server in spec for issuedFor; nil for none.
	issued    *accounttoken.Source
	issuedFor *credentials
	stop      func()
	// pendingSince is since when a Secret has not been read yet; zero if all have.
	pendingSince time.Time
}

// New returns a Client. If a Secret is missing or unusable, requests fail until it is there.
func New(o Options, spec Spec, tokenIssued func()) *Client {
	o.MaxRequests = cmp.Or(o.MaxRequests, DefaultMaxRequests)
	return &Client{options: o, tokenIssued: tokenIssued, slots: semaphore.NewWeighted(int64(o.MaxRequests)), spec: &spec, stop: func() {}}
}

// Apply replaces the spec for future requests.
func (c *Client) Apply(spec Spec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !reflect.DeepEqual(c.spec.Authentication, spec.Authentication) {
		c.stop()
		c.issued = nil
	}
	c.spec = &spec
}

// Run requests tokens until the context ends. It is called once.
func (c *Client) Run(ctx context.Context) { c.requesting.Run(ctx) }

// MaxPending is how long the present connection is still used while a Secret that the spec newly
// references has not been read, or there is no token: the operator has to update a Role first.
const MaxPending = 30 * time.Second

// Connection returns the connection for the present spec and credentials.
func (c *Client) Connection() (*Connection, *query.Failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, err := resolve(c.spec, &c.options, c.issuedTokens)
	before := c.connection
	if _, pending := errors.AsType[pendingError](err); pending {
		if c.pendingSince.IsZero() {
			c.pendingSince = c.options.Clock.Now()
		}
		// Results of another server or tenant would be wrong, though.
		if before != nil && before.Spec.sameData(c.spec) && c.options.Clock.Since(c.pendingSince) < MaxPending {
			return before, nil
		}
		return nil, query.Failf(query.ReasonCredentials, "%s", err)
	}
	c.pendingSince = time.Time{}
	if err != nil {
		return nil, query.Failf(query.ReasonCredentials, "%s", err)
	}
	if before != nil && before.Spec == c.spec && before.credentials.equal(found) {
		return before, nil
	}
	next, err := newConnection(c.spec, found, before, &c.options)
	if err != nil {
		return nil, query.Failf(query.ReasonCredentials, "%s", err)
	}
	if before != nil && before.transport != next.transport {
		// Running requests are not affected.
		before.transport.CloseIdleConnections()
	}
	c.connection = next
	return next, nil
}

// closeReplaced closes the connections that a request leaves idle after they were replaced.
func (c *Client) closeReplaced(n *Connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connection.transport != n.transport {
		n.transport.CloseIdleConnections()
	}
}

// Close closes the connections that no request uses. Requests may still be made.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connection != nil {
		c.connection.transport.CloseIdleConnections()
	}
}

// Do makes a request on a connection once a slot is free, within a time. Failures are of the source, and redacted.
func (c *Client) Do(ctx context.Context, n *Connection, timeout time.Duration, request func(context.Context) error) *query.Failure {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, ErrTimeout)
	defer cancel()
	if err := c.slots.Acquire(ctx, 1); err != nil {
		return FailureOf(c.options.Name, nil, query.Failf(query.ReasonTimeout, "%d other requests were under way all the time: the source is slow, or is asked too much", c.options.MaxRequests))
	}
	defer c.slots.Release(1)
	defer c.closeReplaced(n)
	if err := request(ctx); err != nil {
		return FailureOf(c.options.Name, n, err)
	}
	return nil
}

// issuedTokens returns the tokens of the authorization server of the spec for a client. They are requested in
// the background while Run runs: a server that does not answer delays no request. mu is held.
func (c *Client) issuedTokens(client *credentials) transport.ResettableTokenSource {
	if c.issued == nil || !c.issuedFor.equal(client) {
		c.stop()
		spec := c.spec.Authentication.OAuth2
		u, _ := url.Parse(spec.TokenURL) // The spec is valid.
		client.initRedactor()
		config := &clientcredentials.Config{ClientID: client.username, ClientSecret: client.password, TokenURL: spec.TokenURL, Scopes: spec.Scopes}
		c.issuedFor, c.issued = client, accounttoken.NewForIssuer("the authorization server "+u.Host, func(ctx context.Context) (*oauth2.Token, error) {
			return c.requestToken(ctx, config, client)
		}, c.options.Clock, rand.Float64)
		c.stop = c.requesting.Go(c.issued.Run)
	}
	return c.issued
}

// requestToken requests a token of an authorization server. The server may be elsewhere than the
// source: it is always verified, also by public authorities, and gets no client certificate. oauth2 reads at
// most 1 MiB of an answer.
func (c *Client) requestToken(ctx context.Context, config *clientcredentials.Config, client *credentials) (*oauth2.Token, error) {
	own, err := newTransport(&Spec{}, &credentials{extraCA: client.extraCA}, &c.options)
	if err != nil {
		return nil, err
	}
	defer own.CloseIdleConnections()
	token, err := config.Token(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: own, CheckRedirect: refuseRedirects}))
	if err != nil {
		// It may repeat the request.
		return nil, errors.New(text.Line(client.redact(err.Error()), MaxMessage))
	}
	// Negative without an Expiry.
	token.ExpiresIn = int64(time.Until(token.Expiry).Round(time.Second).Seconds())
	c.tokenIssued()
	return token, nil
}
