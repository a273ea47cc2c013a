// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"k8s.io/client-go/transport"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/metricsbackend/metrics-backend-operator/serving/accounttoken"
)

// issuedTokens returns the tokens of the authorization server in settings for a client. They are requested in
// the background while Run runs: a server that does not answer delays no request. mu is held.
func (s *Source) issuedTokens(client *credentials) transport.ResettableTokenSource {
	if s.issued == nil || !s.client.equal(client) {
		if s.issued != nil {
			s.stop()
		}
		spec := s.settings.spec.Authentication.OAuth2
		u, _ := url.Parse(spec.TokenURL) // newSettings has parsed it.
		config := &clientcredentials.Config{ClientID: client.username, ClientSecret: client.password, TokenURL: spec.TokenURL, Scopes: spec.Scopes}
		s.client = client
		s.issued = accounttoken.NewOf("the authorization server "+u.Host, s.requestIssued(config, client), s.clock, rand.Float64)
		s.stop = s.requesting.Go(s.issued.Run)
	}
	return s.issued
}

// requestIssued returns a function that requests a token of an authorization server, and then a probe. The server may be elsewhere than
// the source: it is always verified, also by public authorities, and gets no client certificate. oauth2 reads at most
// 1 MiB of an answer.
func (s *Source) requestIssued(config *clientcredentials.Config, client *credentials) func(context.Context) (*oauth2.Token, error) {
	roots := publicRoots()
	roots.AppendCertsFromPEM(client.ca)
	roots.AppendCertsFromPEM(client.extraCA)
	client.initRedactor()
	requests := &http.Client{
		Transport:     transportWith(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, s.dial),
		CheckRedirect: refuseRedirects,
	}
	return func(ctx context.Context) (*oauth2.Token, error) {
		// Without an idle connection, which would outlast the source.
		defer requests.CloseIdleConnections()
		token, err := config.Token(context.WithValue(ctx, oauth2.HTTPClient, requests))
		if err != nil {
			// It may repeat the request.
			return nil, errors.New(text.Line(client.redact(err.Error()), maxMessage))
		}
		if !token.Expiry.IsZero() {
			token.ExpiresIn = int64(time.Until(token.Expiry).Round(time.Second).Seconds())
		}
		s.health.probeRequested.Set()
		return token, nil
	}
}
