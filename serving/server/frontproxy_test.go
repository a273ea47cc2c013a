// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/test/authority"
)

// changingCA is a CA that a test replaces.
type changingCA struct {
	dynamiccertificates.CAContentProvider
	roots *x509.CertPool
	now   func() time.Time
	// read counts the reads: one for a request whose certificate is known, two for another.
	read int
}

func (c *changingCA) VerifyOptions() (x509.VerifyOptions, bool) {
	c.read++
	return x509.VerifyOptions{Roots: c.roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, CurrentTime: c.now()}, c.roots != nil
}

// proxyWorld is a front proxy that is sent requests with a certificate of its authority.
type proxyWorld struct {
	*frontProxy
	clock *clocktesting.FakePassiveClock
	ca    *changingCA
	names headerrequest.StaticStringSlice
	other *x509.CertPool
	leaf  *x509.Certificate
}

func newProxyWorld(t testing.TB) *proxyWorld {
	now := time.Now()
	clientAuth := func(c *x509.Certificate) {
		c.ExtKeyUsage, c.NotBefore, c.NotAfter = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, now.Add(-time.Hour), now.Add(150*time.Second)
	}
	ours, err := authority.New("front-proxy-ca")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ours.Issue("front-proxy-client", nil, clientAuth)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(leaf.TLS.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	w := &proxyWorld{clock: clocktesting.NewFakePassiveClock(now), other: x509.NewCertPool(), leaf: certificate}
	w.ca = &changingCA{roots: x509.NewCertPool(), now: w.clock.Now}
	w.ca.roots.AddCert(ours.Certificate)
	header := func(names ...string) headerrequest.StringSliceProvider { return headerrequest.StaticStringSlice(names) }
	w.frontProxy = newFrontProxy(&authenticatorfactory.RequestHeaderConfig{
		CAContentProvider: w.ca, AllowedClientNames: headerrequest.StringSliceProviderFunc(func() []string { return w.names }),
		UsernameHeaders: header("X-Remote-User"), UIDHeaders: header(), GroupHeaders: header("X-Remote-Group"), ExtraHeaderPrefixes: header("X-Remote-Extra-"),
	}, w.clock)
	return w
}

// user returns who a request is of; empty for nobody.
func (w *proxyWorld) user(t testing.TB, certificates ...*x509.Certificate) string {
	r := httptest.NewRequest(http.MethodGet, "/apis", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: certificates}
	r.Header.Set("X-Remote-User", "alice")
	response, ok, err := w.AuthenticateRequest(r)
	if !ok || err != nil {
		return ""
	}
	if r.Header.Get("X-Remote-User") != "" {
		t.Error("the header is passed on")
	}
	return response.User.GetName()
}

func TestFrontProxy(t *testing.T) {
	stranger, err := authority.New("stranger")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		change func(w *proxyWorld)
		want   string
		// verified counts the verifications of two requests after the change.
		verified int
	}{
		"nothing changes":              {func(*proxyWorld) {}, "alice", 0},
		"it is verified again":         {func(w *proxyWorld) { w.clock.SetTime(w.clock.Now().Add(2 * verifiedTime)) }, "alice", 1},
		"the certificate expires":      {func(w *proxyWorld) { w.clock.SetTime(w.leaf.NotAfter.Add(time.Second)) }, "", 2},
		"another CA":                   {func(w *proxyWorld) { w.ca.roots = w.other }, "", 2},
		"there is no CA any more":      {func(w *proxyWorld) { w.ca.roots = nil }, "", 0},
		"another name is allowed":      {func(w *proxyWorld) { w.names = []string{"someone-else"} }, "", 2},
		"its name is allowed":          {func(w *proxyWorld) { w.names = []string{"front-proxy-client"} }, "alice", 1},
		"a certificate of a stranger":  {func(w *proxyWorld) { w.leaf = stranger.Certificate }, "", 2},
		"an equal one is parsed again": {func(w *proxyWorld) { w.leaf, _ = x509.ParseCertificate(w.leaf.Raw) }, "alice", 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newProxyWorld(t)
			for range 2 {
				if got := w.user(t, w.leaf); got != "alice" {
					t.Fatalf("the user is %q", got)
				}
			}
			test.change(w)
			w.ca.read = 0
			for range 2 {
				if got := w.user(t, w.leaf); got != test.want {
					t.Errorf("the user is %q, want %q", got, test.want)
				}
			}
			if verified := w.ca.read - 2; verified != test.verified {
				t.Errorf("%d verifications, want %d", verified, test.verified)
			}
		})
	}
	t.Run("expires between two verifications", func(t *testing.T) {
		w := newProxyWorld(t)
		w.clock.SetTime(w.leaf.NotAfter.Add(-10 * time.Second))
		before := w.user(t, w.leaf)
		w.clock.SetTime(w.leaf.NotAfter.Add(time.Second))
		if after := w.user(t, w.leaf); before != "alice" || after != "" {
			t.Errorf("the user is %q, and %q once the certificate has expired", before, after)
		}
	})
	t.Run("no certificate", func(t *testing.T) {
		if got := newProxyWorld(t).user(t); got != "" {
			t.Errorf("the user is %q", got)
		}
	})
}

// BenchmarkFrontProxy compares with what the stock authenticator does for each request.
func BenchmarkFrontProxy(b *testing.B) {
	w := newProxyWorld(b)
	request := func() *http.Request {
		return &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{w.leaf}}, Header: http.Header{"X-Remote-User": {"alice"}}}
	}
	b.Run("cached", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = w.AuthenticateRequest(request())
		}
	})
	b.Run("stock", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = w.verifying.AuthenticateRequest(request())
		}
	})
}
