// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/x509"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/utils/clock"
)

const (
	// verifiedTime is for how long a verified certificate of a front proxy is not verified again, and
	// maxVerified limits such certificates: each connection of a kube-apiserver has one.
	verifiedTime = time.Minute
	maxVerified  = 100
)

// frontProxy authenticates requests that kube-apiserver proxies for a user. The stock authenticator
// verifies kube-apiserver's certificate for each request, which takes a sixth of the time of a small one: here that
// is done once a minute for each connection, and whenever the CA or the allowed names change.
type frontProxy struct {
	clock   clock.PassiveClock
	config  *authenticatorfactory.RequestHeaderConfig
	headers authenticator.Request
	// verifying verifies the certificate before it reads the headers.
	verifying authenticator.Request
	// verified has the allowed names with which a certificate was verified, by verifiedKey.
	verified *cache.LRUExpireCache
}

// verifiedKey is a certificate, which the handshake of a connection has shown to be the client's, and the CAs by
// which it was verified.
type verifiedKey struct {
	certificate *x509.Certificate
	roots       *x509.CertPool
}

func newFrontProxy(config *authenticatorfactory.RequestHeaderConfig, c clock.PassiveClock) *frontProxy {
	headers := headerrequest.NewDynamic(config.UsernameHeaders, config.UIDHeaders, config.GroupHeaders, config.ExtraHeaderPrefixes)
	return &frontProxy{
		clock: c, config: config, headers: headers,
		verifying: x509request.NewDynamicCAVerifier(config.CAContentProvider.VerifyOptions, headers, config.AllowedClientNames),
		verified:  cache.NewLRUExpireCacheWithClock(maxVerified, c),
	}
}

// AuthenticateRequest implements authenticator.Request.
func (p *frontProxy) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	options, known := p.config.CAContentProvider.VerifyOptions()
	if !known || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	key, names := verifiedKey{r.TLS.PeerCertificates[0], options.Roots}, p.config.AllowedClientNames.Value()
	if before, ok := p.verified.Get(key); ok && slices.Equal(before.([]string), names) {
		return p.headers.AuthenticateRequest(r)
	}
	response, ok, err := p.verifying.AuthenticateRequest(r)
	if ok && err == nil {
		p.verified.Add(key, names, min(verifiedTime, key.certificate.NotAfter.Sub(p.clock.Now())))
	}
	return response, ok, err
}
