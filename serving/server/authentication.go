// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/union"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

const (
	// authenticationConfigMap in kube-system is where kube-apiserver publishes how aggregated
	// servers authenticate its requests.
	authenticationConfigMap = "extension-apiserver-authentication"
	// authenticationTimeout limits the read of that ConfigMap before the port opens.
	authenticationTimeout = 5 * time.Second
)

// delegatedAuthentication authenticates requests as kube-apiserver would.
//
// The stock DelegatingAuthenticationOptions.ApplyTo fails while kube-apiserver cannot be
// reached, so the process would exit and the container's restart backoff outlast the outage.
// Here the port opens at once and every request is rejected until the configuration is read;
// the health endpoints answer, and readiness reports what it waits for. It implements
// readiness.Gate.
type delegatedAuthentication struct {
	// lookup is true if the configuration is read from the cluster.
	lookup  bool
	headers *authenticatorfactory.RequestHeaderConfig
}

// applyAuthentication fills in config.Authentication and the client CAs.
func (o *Options) applyAuthentication(config *genericapiserver.Config) (*delegatedAuthentication, error) {
	a := o.Authentication
	restConfig, err := restConfigFrom(a.RemoteKubeConfigFile, "--authentication-kubeconfig")
	if err != nil {
		return nil, err
	}
	restConfig.QPS, restConfig.Burst = 200, 400
	client, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return nil, fmt.Errorf("make a client from --authentication-kubeconfig: %w", err)
	}
	published := newPublishedAuthentication(client)
	clientCA, err := o.clientCA(published)
	if err != nil {
		return nil, err
	}
	headers, err := o.requestHeaders(published)
	if err != nil {
		return nil, err
	}
	authenticator, definitions, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		// Kubelets probe without credentials. Everything else requires them: for a missing
		// credential, 401 is clearer than 403.
		Anonymous:                          &apiserver.AnonymousAuthConfig{Enabled: true, Conditions: healthPaths()},
		CacheTTL:                           a.CacheTTL,
		WebhookRetryBackoff:                a.WebhookRetryBackoff,
		TokenAccessReviewTimeout:           a.TokenRequestTimeout,
		TokenAccessReviewClient:            client.AuthenticationV1(),
		ClientCertificateCAContentProvider: clientCA,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("set up delegated authentication: %w", err)
	}
	if headers != nil {
		proxied := newFrontProxy(headers, clock.RealClock{})
		authenticator = union.New(group.NewAuthenticatedGroupAdder(proxied), authenticator)
	}

	if clientCA != nil {
		if err := config.Authentication.ApplyClientCert(clientCA, config.SecureServing); err != nil {
			return nil, fmt.Errorf("ask clients for certificates of the client CA: %w", err)
		}
	}
	if headers != nil {
		if err := config.Authentication.ApplyClientCert(headers.CAContentProvider, config.SecureServing); err != nil {
			return nil, fmt.Errorf("ask clients for certificates of the request header CA: %w", err)
		}
	}
	config.Authentication.Authenticator = authenticatorWithRequestStack(authenticator)
	config.Authentication.RequestHeaderConfig = headers
	if config.OpenAPIConfig != nil {
		config.OpenAPIConfig.SecurityDefinitions = definitions
	}
	return &delegatedAuthentication{
		lookup:  a.RequestHeader.ClientCAFile == "" && !a.SkipInClusterLookup && !a.TolerateInClusterLookupFailure,
		headers: headers,
	}, nil
}

// clientCA returns the CA of client certificates of users; nil if there is none.
func (o *Options) clientCA(published *publishedAuthentication) (dynamiccertificates.CAContentProvider, error) {
	a := o.Authentication
	switch {
	case a.ClientCert != (genericoptions.ClientCertAuthenticationOptions{}):
		ca, err := a.ClientCert.GetClientCAContentProvider()
		if err != nil {
			return nil, fmt.Errorf("read --client-ca-file: %w", err)
		}
		return ca, nil
	case a.SkipInClusterLookup:
		return nil, nil
	}
	return published.clientCA(), nil
}

// requestHeaders returns how requests are authenticated that kube-apiserver proxies for a
// user; nil with --authentication-skip-lookup.
func (o *Options) requestHeaders(published *publishedAuthentication) (*authenticatorfactory.RequestHeaderConfig, error) {
	a := o.Authentication
	switch {
	case a.RequestHeader.ClientCAFile != "":
		headers, err := a.RequestHeader.ToAuthenticationRequestHeaderConfig()
		if err != nil {
			return nil, fmt.Errorf("read --requestheader-client-ca-file: %w", err)
		}
		return headers, nil
	case a.SkipInClusterLookup:
		return nil, nil
	}
	return published.requestHeaders(), nil
}

// Name implements readiness.Gate.
func (*delegatedAuthentication) Name() string { return "authentication-config" }

// Check implements readiness.Gate.
func (d *delegatedAuthentication) Check(context.Context) error {
	if !d.lookup {
		return nil
	}
	if _, ok := d.headers.CAContentProvider.VerifyOptions(); !ok || len(d.headers.UsernameHeaders.Value()) == 0 {
		return errors.New("waiting for ConfigMap kube-system/" + authenticationConfigMap + ", or for its keys requestheader-*: " +
			"kube-apiserver must be reachable and have its --requestheader-* flags set, " +
			"and this account needs the Role extension-apiserver-authentication-reader in kube-system")
	}
	return nil
}

// healthPaths returns the paths that need no credentials.
func healthPaths() []apiserver.AnonymousAuthCondition {
	return []apiserver.AnonymousAuthCondition{{Path: "/healthz"}, {Path: "/livez"}, {Path: "/readyz"}}
}
