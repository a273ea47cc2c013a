//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/transport"

	"github.com/metricsbackend/metrics-backend-operator/test/authority"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

const (
	authenticationConfig = "extension-apiserver-authentication"
	// frontProxyName is what kube-apiserver's client certificate must be for.
	frontProxyName = "front-proxy-client"
	readerUser     = "system:serviceaccount:" + servingNamespace + ":reader"
)

// replace writes a file by a rename, as a mounted Secret changes.
func replace(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// asProxy sends a request for a user as kube-apiserver does, with a client certificate of the authority.
func (p *process) asProxy(t *testing.T, a *authority.Authority, user, path string) (int, error) {
	t.Helper()
	client := &http.Client{Timeout: 30 * time.Second, Transport: p.proxyTransport(t, a)}
	defer client.CloseIdleConnections()
	answer, err := p.send(t.Context(), client, path, "", "X-Remote-User", user)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	return answer.StatusCode, nil
}

// proxyTransport has a client certificate of the authority, as kube-apiserver has.
func (p *process) proxyTransport(t *testing.T, a *authority.Authority) *http.Transport {
	t.Helper()
	leaf, err := a.Issue(frontProxyName, nil)
	if err != nil {
		t.Fatal(err)
	}
	config := p.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.Certificates = []tls.Certificate{leaf.TLS}
	return &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
}

// forAdministrator is the process for requests that kube-apiserver proxies for an administrator. It allows them without
// asking kube-apiserver, which may be down.
func (p *process) forAdministrator(t *testing.T) *process {
	t.Helper()
	direct := p.proxyTransport(t, cluster.frontProxy)
	t.Cleanup(direct.CloseIdleConnections)
	as := transport.NewAuthProxyRoundTripper("administrator", "", []string{user.SystemPrivilegedGroup}, nil, direct)
	return &process{url: p.url, client: &http.Client{Timeout: p.client.Timeout, Transport: as}}
}

func (p *process) wantAsProxy(t *testing.T, a *authority.Authority, want int) func(context.Context) error {
	return func(context.Context) error {
		status, err := p.asProxy(t, a, readerUser, "/apis/metrics.k8s.io/v1/nodes")
		if err != nil || status != want {
			return fmt.Errorf("status %d, %v, want %d", status, err, want)
		}
		return nil
	}
}

// TestFrontProxyRotation replaces the CA of kube-apiserver's client certificate: first with both trusted for a while, as
// kubeadm documents, and no request fails; then at once, and requests recover without a restart.
func TestFrontProxyRotation(t *testing.T) {
	p, _ := startAlone(t, "proxied")
	p.waitReady(t)
	cluster.registerBoth(t, "proxied", p.port)
	mirrored := cluster.startMirror(t)
	first := cluster.frontProxy
	outcome.Eventually(t, time.Minute, "kube-apiserver asks the mirror", func(context.Context) error { return mirrored.shows(t.Context(), first) })
	second, err := authority.New("second-front-proxy-ca")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.wantAsProxy(t, second, http.StatusUnauthorized)(t.Context()); err != nil {
		t.Fatalf("before, with a certificate of an unknown authority: %v", err)
	}

	l := startLoad(t, 4)
	replace(t, cluster.frontProxyCA, append(append([]byte{}, first.PEM...), second.PEM...))
	outcome.Eventually(t, 2*time.Minute, "serving recognises both", func(ctx context.Context) error {
		if err := p.wantAsProxy(t, first, http.StatusOK)(ctx); err != nil {
			return err
		}
		return p.wantAsProxy(t, second, http.StatusOK)(ctx)
	})
	issueFiles(t, second, cluster.folder, frontProxyName)
	outcome.Eventually(t, 2*time.Minute, "kube-apiserver uses the new certificate", func(context.Context) error { return mirrored.shows(t.Context(), second) })
	// It reconnects for one API after the other.
	wantAnswers := func() {
		t.Helper()
		l.wantAnswers(t, 200, time.Minute, "requests go on")
	}
	wantAnswers()
	replace(t, cluster.frontProxyCA, second.PEM)
	cluster.frontProxy = second
	// kube-apiserver adds to what is published and takes nothing away: an administrator does, again if kube-apiserver
	// published the old file once more because it had not read the new one yet.
	outcome.Eventually(t, 2*time.Minute, "serving no longer recognises the old one", func(ctx context.Context) error {
		forgetFrontProxies(t, second)
		return p.wantAsProxy(t, first, http.StatusUnauthorized)(ctx)
	})
	wantAnswers()
	l.finish(t)

	third, err := authority.New("third-front-proxy-ca")
	if err != nil {
		t.Fatal(err)
	}
	issueFiles(t, third, cluster.folder, frontProxyName)
	outcome.Eventually(t, 2*time.Minute, "serving refuses a proxy that it does not know, and says so", func(context.Context) error {
		return p.logged("Unable to authenticate the request")
	})
	replace(t, cluster.frontProxyCA, third.PEM)
	cluster.frontProxy = third
	outcome.Eventually(t, 2*time.Minute, "serving recognises the new one alone", p.wantAsProxy(t, third, http.StatusOK))
	outcome.Eventually(t, 2*time.Minute, "requests are answered again", func(context.Context) error {
		if _, err := raw(t.Context(), "/apis/metrics.k8s.io/v1/nodes"); err != nil {
			return err
		}
		return cluster.available(t.Context(), metricsVersion("v1"))
	})
}

// forgetFrontProxies removes all authorities but one from what kube-apiserver publishes.
func forgetFrontProxies(t *testing.T, but *authority.Authority) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"requestheader-client-ca-file": string(but.PEM)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Patch(t.Context(), authenticationConfig, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatalf("forget the other authorities: %v", err)
	}
}

// mirror is an aggregated server that records the client certificate of kube-apiserver.
type mirror struct {
	mu   sync.Mutex
	last *x509.Certificate
}

const mirrorGroup = "mirror.example.com"

func (c *controlPlane) startMirror(t *testing.T) *mirror {
	t.Helper()
	m := &mirror{}
	name := "mirror." + servingNamespace + ".svc"
	leaf, err := c.servingCA.Issue(name, []string{name})
	if err != nil {
		t.Fatal(err)
	}
	port := serveTLS(t, m, &tls.Config{Certificates: []tls.Certificate{leaf.TLS}, ClientAuth: tls.RequestClientCert})
	c.register(t, "mirror", port)
	c.createAPIService(t, "mirror", port, schema.GroupVersion{Group: mirrorGroup, Version: "v1"}, 10)
	return m
}

// serveTLS runs a server on loopback until the test ends, and returns its port.
func serveTLS(t *testing.T, handler http.Handler, config *tls.Config) int32 {
	t.Helper()
	config.MinVersion = tls.VersionTLS12
	server := httptest.NewUnstartedServer(handler)
	server.TLS = config
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return int32(server.Listener.Addr().(*net.TCPAddr).Port)
}

// ServeHTTP implements http.Handler.
func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/apis/"+mirrorGroup+"/v1/look" && len(r.TLS.PeerCertificates) > 0 {
		m.mu.Lock()
		m.last = r.TLS.PeerCertificates[0]
		m.mu.Unlock()
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"`+mirrorGroup+`/v1","resources":[]}`)
}

// shows returns nil when kube-apiserver uses a certificate of the authority.
func (m *mirror) shows(ctx context.Context, a *authority.Authority) error {
	if _, err := raw(ctx, "/apis/"+mirrorGroup+"/v1/look"); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		return errors.New("it shows no certificate")
	}
	return m.last.CheckSignatureFrom(a.Certificate)
}
