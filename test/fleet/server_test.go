// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"testing"
)

// start the fleet; it stops with the test.
func start(t testing.TB, f *Fleet) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() {
		stop()
		f.Wait()
	})
	if err := f.Start(ctx); err != nil {
		t.Fatal(err)
	}
}

// client is a scraper that trusts the fleet's CA and keeps its connections.
type client struct {
	http  *http.Client
	token string
}

func newClient(t testing.TB, f *Fleet, http2 bool) *client {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(f.Authority().PEM) {
		t.Fatal("the CA is no certificate")
	}
	transport := &http.Transport{
		TLSClientConfig:    &tls.Config{RootCAs: roots},
		ForceAttemptHTTP2:  http2,
		DisableCompression: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{http: &http.Client{Transport: transport}, token: "a-token"}
}

func (c *client) get(ctx context.Context, n *Node, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+n.Address().String()+path, nil)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.http.Do(request)
}

type answer struct {
	status int
	body   []byte
	err    error
}

func (c *client) scrape(ctx context.Context, n *Node) answer {
	response, err := c.get(ctx, n, metricsPath)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{status: response.StatusCode, body: body, err: err}
}

func TestScrapeOverTLS(t *testing.T) {
	for protocol, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(protocol, func(t *testing.T) {
			f, _ := newFleet(t, Options{Nodes: 5, PodsPerNode: 2})
			start(t, f)
			c := newClient(t, f, http2)
			for _, n := range f.Nodes() {
				response, err := c.get(t.Context(), n, metricsPath)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(response.Body)
				if err != nil {
					t.Fatal(err)
				}
				_ = response.Body.Close()
				if response.Proto != protocol || response.Header.Get("Content-Type") != contentType {
					t.Errorf("%s with content type %q", response.Proto, response.Header.Get("Content-Type"))
				}
				if string(body) != string(n.AppendBody(nil, epoch)) {
					t.Errorf("%s answered with another body than its own", n.Name)
				}
				leaf := response.TLS.PeerCertificates[0]
				if leaf.Subject.CommonName != "system:node:"+n.Name || leaf.VerifyHostname(n.Name) != nil {
					t.Errorf("%s has a certificate for %s", n.Name, leaf.Subject.CommonName)
				}
			}
		})
	}
}

func TestAuthenticationAndPaths(t *testing.T) {
	f, _ := newFleet(t, Options{PodsPerNode: 1})
	start(t, f)
	for name, test := range map[string]struct {
		token, path string
		want        int
	}{
		"any token":              {"x", "/metrics/resource", http.StatusOK},
		"no token":               {"", "/metrics/resource", http.StatusUnauthorized},
		"another path":           {"x", "/metrics", http.StatusNotFound},
		"another path, no token": {"", "/metrics", http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, f, true)
			c.token = test.token
			response, err := c.get(t.Context(), f.Nodes()[0], test.path)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != test.want {
				t.Errorf("status %d, want %d", response.StatusCode, test.want)
			}
		})
	}
}

func TestStopClosesEverything(t *testing.T) {
	f, _ := newFleet(t, Options{Nodes: 3, PodsPerNode: 1})
	ctx, stop := context.WithCancel(t.Context())
	if err := f.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := f.Start(ctx); err == nil {
		t.Error("a fleet that runs was started again")
	}
	c := newClient(t, f, true)
	if a := c.scrape(t.Context(), f.Nodes()[0]); a.err != nil {
		t.Fatal(a.err)
	}
	stop()
	f.Wait()
	for _, n := range f.Nodes() {
		if a := c.scrape(t.Context(), n); a.err == nil {
			t.Errorf("%s of a fleet that was stopped answers", n.Name)
		}
	}
}
