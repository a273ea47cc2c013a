// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	certutil "k8s.io/client-go/util/cert"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// dialFunc is the type of net.Dialer.DialContext.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// credentials authenticate requests to kubelets and hold the default CA.
type credentials struct {
	// defaultCA is guarded by Source.mu; verified is only ever set; the other fields never change.
	defaultCA []byte
	dial      dialFunc
	// clientCertificate is nil if there is none.
	clientCertificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
	// verified is true once a CA has verified some kubelet.
	verified atomic.Bool
	// roundTripper adds the token, which it reloads or resets after status 401, and sends
	// the request over the connection in the request's context (attempt).
	roundTripper http.RoundTripper
}

// newCredentials returns the credentials of a client configuration, or tokens, if not nil,
// instead of them. The configuration's host, CA and server name are kube-apiserver's and are
// not used.
func newCredentials(config *rest.Config, tokens transport.ResettableTokenSource, defaultCA []byte, dial dialFunc) (*credentials, error) {
	c := &credentials{defaultCA: defaultCA, dial: dial}
	if c.dial == nil {
		c.dial = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	if config == nil {
		config = &rest.Config{}
	}
	if tokens != nil {
		config = rest.AnonymousClientConfig(config)
	}
	tc, err := config.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("read the credentials for kubelets: %w", err)
	}
	switch {
	case tokens != nil:
		tc.Wrap(transport.ResettableTokenSourceWrapTransport(&tokenSource{ResettableTokenSource: tokens}))
	case tc.BearerTokenFile != "":
		// Unlike for the file in a config, a token that was rejected is not cached.
		file := &tokenSource{transport.NewCachedFileTokenSource(tc.BearerTokenFile), tc.BearerToken}
		if _, err := file.Token(); err != nil {
			return nil, fmt.Errorf("read the credentials for kubelets: %w", err)
		}
		tc.BearerToken, tc.BearerTokenFile = "", ""
		tc.Wrap(transport.ResettableTokenSourceWrapTransport(file))
	}
	c.roundTripper, err = transport.HTTPWrappersForConfig(tc, attemptTransport{})
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

// tokenSource returns a token, or a static one, if not empty, while there is none, such as
// when its file cannot be read.
type tokenSource struct {
	transport.ResettableTokenSource
	static string
}

// Token implements oauth2.TokenSource. Its errors are a tokenError.
func (s *tokenSource) Token() (*oauth2.Token, error) {
	token, err := s.ResettableTokenSource.Token()
	switch {
	case err == nil:
		return token, nil
	case s.static != "":
		return &oauth2.Token{AccessToken: s.static}, nil
	}
	return nil, &tokenError{err}
}

// tokenError is the error of a missing token.
type tokenError struct{ error }

func (e *tokenError) Unwrap() error { return e.error }

// defaultCAName is the name of Options.DefaultCA in errors.
const defaultCAName = "the cluster's CA"

// kubeletTLS says how kubelets are verified. It is immutable.
type kubeletTLS struct {
	*credentials
	mode v1alpha1.KubeletTLSMode
	// roots is nil unless mode is Verify or VerifyOrPin, and empty if there is no CA: nil
	// would make crypto/tls use those of the operating system.
	roots *x509.CertPool
	// unverifiable is why no kubelet can be verified, or nil.
	unverifiable *failure
}

// kubeletTLS returns the TLS settings for a mode. An empty caBundle stands for the
// default CA.
func (c *credentials) kubeletTLS(mode v1alpha1.KubeletTLSMode, caBundle []byte) (*kubeletTLS, error) {
	s := &kubeletTLS{credentials: c, mode: mode}
	switch mode {
	case v1alpha1.KubeletTLSPinOnFirstUse, v1alpha1.KubeletTLSInsecureSkipTLSVerify:
		return s, nil
	case v1alpha1.KubeletTLSVerify, v1alpha1.KubeletTLSVerifyOrPin:
	default:
		return nil, fmt.Errorf("kubelet TLS mode %q: must be VerifyOrPin, Verify, PinOnFirstUse or InsecureSkipTLSVerify", mode)
	}
	ca, name := caBundle, "kubeletTLS.caBundle"
	if len(ca) == 0 {
		ca, name = c.defaultCA, defaultCAName
	}
	if len(ca) == 0 {
		// Not an error: the other settings are valid, the CA may be set later, and
		// the status shows the failed nodes.
		s.roots = x509.NewCertPool()
		s.unverifiable = failf(v1alpha1.ScrapeCertificateUntrusted, "there is no certificate authority to verify kubelets with, as the client configuration has none: "+
			"give the kubelets' authority in spec.resourceMetrics.kubeletTLS.caBundle, or choose kubeletTLS.mode: PinOnFirstUse")
		return s, nil
	}
	var err error
	if s.roots, err = parseCA(ca, name); err != nil {
		return nil, err
	}
	return s, nil
}

// pins reports whether certificates are pinned that no CA verified.
func (s *kubeletTLS) pins() bool {
	return s.mode == v1alpha1.KubeletTLSPinOnFirstUse || s.mode == v1alpha1.KubeletTLSVerifyOrPin && !s.verified.Load()
}

// parseCA returns a pool of PEM certificates. name stands for them in errors.
func parseCA(ca []byte, name string) (*x509.CertPool, error) {
	roots, err := certutil.NewPoolFromBytes(ca)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	return roots, nil
}
