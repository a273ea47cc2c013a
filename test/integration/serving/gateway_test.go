//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/authority"
)

// startGateway starts a proxy before a server with Prometheus' API, as people have them: it authenticates
// clients, or chooses the tenant's server by X-Scope-OrgID as Mimir does. answer, which may be nil, handles a
// request instead of the server if it returns true. With clients it speaks TLS, and wants a certificate signed
// by that authority.
func startGateway(t *testing.T, server string, answer func(http.ResponseWriter, *http.Request) bool, clients *authority.Authority) *httptest.Server {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	g := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer == nil || !answer(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	if clients == nil {
		g.Start()
	} else {
		roots := x509.NewCertPool()
		roots.AddCert(clients.Certificate)
		leaf, err := clients.Issue("gateway", []string{"127.0.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		g.TLS = &tls.Config{Certificates: []tls.Certificate{leaf.TLS}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
		g.StartTLS()
	}
	t.Cleanup(g.Close)
	return g
}

// gatewaySecret has the credentials for gateways, in a Secret that serving may read until the test has
// ended.
type gatewaySecret struct {
	v1alpha1.SecretReference
	// authority signs the certificates of gateways, and that of clients.
	authority *authority.Authority
}

func newGatewaySecret(t *testing.T, name, user, password, token string) *gatewaySecret {
	t.Helper()
	ca, err := authority.New("gateways")
	if err != nil {
		t.Fatal(err)
	}
	client, err := ca.Issue("serving", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := grantSecret(t.Context(), cluster.client, name); err != nil {
		t.Fatal(err)
	}
	_, err = cluster.client.CoreV1().Secrets(servingNamespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data: map[string][]byte{
			"username": []byte(user), "password": []byte(password), "token": []byte(token + "\n"),
			"ca.crt": ca.PEM, corev1.TLSCertKey: client.Certificate, corev1.TLSPrivateKeyKey: client.Key,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cluster.delete(t, "secrets", servingNamespace, name) })
	return &gatewaySecret{v1alpha1.SecretReference{Name: name}, ca}
}

func (s *gatewaySecret) basic() v1alpha1.SourceAuthentication {
	return v1alpha1.SourceAuthentication{BasicAuthSecretRef: &s.SecretReference}
}

func (s *gatewaySecret) bearer() v1alpha1.SourceAuthentication {
	return v1alpha1.SourceAuthentication{BearerTokenSecretKeyRef: s.key("token")}
}

// tls has the authority, and the certificate of a client.
func (s *gatewaySecret) tls() v1alpha1.SourceTLS {
	return v1alpha1.SourceTLS{CASecretKeyRef: s.key("ca.crt"), ClientCertificateSecretRef: &s.SecretReference}
}

func (s *gatewaySecret) key(key string) *v1alpha1.SecretKeyReference {
	return &v1alpha1.SecretKeyReference{SecretReference: s.SecretReference, Key: key}
}

// requires answers 401 with a body to requests that do not pass.
func requires(body string, pass func(*http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if pass(r) {
			return false
		}
		http.Error(w, body, http.StatusUnauthorized)
		return true
	}
}

// tenants forwards a request to its tenant's server. As with Mimir, one without a tenant is a 401,
// and a tenant that does not exist has no series.
func tenants(t *testing.T, servers map[string]string) func(http.ResponseWriter, *http.Request) bool {
	t.Helper()
	proxies := map[string]http.Handler{}
	for tenant, server := range servers {
		target, err := url.Parse(server)
		if err != nil {
			t.Fatal(err)
		}
		proxies[tenant] = httputil.NewSingleHostReverseProxy(target)
	}
	return func(w http.ResponseWriter, r *http.Request) bool {
		tenant := r.Header.Get("X-Scope-OrgID")
		if tenant == "" {
			http.Error(w, "no org id", http.StatusUnauthorized)
			return true
		}
		if proxies[tenant] == nil {
			return false
		}
		proxies[tenant].ServeHTTP(w, r)
		return true
	}
}
