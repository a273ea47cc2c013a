// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
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
	serial string // of the certificate
	err    error
}

func (c *client) scrape(ctx context.Context, n *Node) answer {
	response, err := c.get(ctx, n, defaultMetricsPath)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	serial := response.TLS.PeerCertificates[0].SerialNumber.String()
	return answer{status: response.StatusCode, body: body, serial: serial, err: err}
}

// scrapeAnew scrapes after the kubelet closed its connections. A request that
// the client had put on the old one before it noticed is made again.
func (c *client) scrapeAnew(ctx context.Context, n *Node) answer {
	for {
		a := c.scrape(ctx, n)
		if !errors.Is(a.err, io.EOF) && !errors.Is(a.err, io.ErrUnexpectedEOF) && !errors.Is(a.err, syscall.ECONNRESET) &&
			!errors.Is(a.err, syscall.EPIPE) || ctx.Err() != nil {
			return a
		}
	}
}

// until yields the processor until the condition holds: it waits for other
// goroutines of this process, not for time to pass.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func TestScrapeOverTLS(t *testing.T) {
	for name, options := range map[string]Options{
		"one address, many ports": {Nodes: 5, PodsPerNode: 2},
		"an address per node":     {Nodes: 5, PodsPerNode: 2, IPPerNode: true},
		"IPv6":                    {Nodes: 5, PodsPerNode: 2, IP: "::1"},
	} {
		for protocol, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
			t.Run(name+", "+protocol, func(t *testing.T) {
				f, _ := newFleet(t, options)
				start(t, f)
				c := newClient(t, f, http2)
				addresses := map[string]bool{}
				for _, n := range f.Nodes() {
					addresses[n.Address().Addr().String()] = true
					response, err := c.get(t.Context(), n, defaultMetricsPath)
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
				if options.IPPerNode != (len(addresses) == 5) {
					t.Errorf("addresses %v", addresses)
				}
				if stats := f.Stats(); stats.Answered != 5 || stats.Connections != 5 || stats.Refused != 0 {
					t.Errorf("stats %+v, want 5 answers over 5 connections", stats)
				}
			})
		}
	}
}

func TestAuthenticationAndPaths(t *testing.T) {
	for name, test := range map[string]struct {
		accepted, token, path string
		want                  int
	}{
		"any token":                 {"", "x", "/metrics/resource", http.StatusOK},
		"no token":                  {"", "", "/metrics/resource", http.StatusUnauthorized},
		"the token":                 {"secret", "secret", "/metrics/resource", http.StatusOK},
		"another token":             {"secret", "guess", "/metrics/resource", http.StatusUnauthorized},
		"another path":              {"", "x", "/metrics", http.StatusNotFound},
		"another path, no token":    {"", "", "/metrics", http.StatusUnauthorized},
		"the token with an ending":  {"secret", "secret2", "/metrics/resource", http.StatusUnauthorized},
		"the beginning of a token ": {"secret", "secre", "/metrics/resource", http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := newFleet(t, Options{PodsPerNode: 1, Token: test.accepted})
			start(t, f)
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
	ctx, stop := context.WithCancel(context.Background())
	if err := f.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := f.Start(ctx); err == nil {
		t.Error("a fleet that runs was started again")
	}
	c := newClient(t, f, true)
	if err := f.SetFault(Fault{Kind: Hanging}, f.Nodes()[0].Name); err != nil {
		t.Fatal(err)
	}
	hanging := make(chan answer)
	go func() { hanging <- c.scrape(context.Background(), f.Nodes()[0]) }()
	until(t, "a request in flight", func() bool { return f.Stats().InFlight == 1 })
	stop()
	f.Wait()
	if a := <-hanging; a.err == nil {
		t.Errorf("the hanging request got %d", a.status)
	}
	if a := c.scrape(t.Context(), f.Nodes()[1]); a.err == nil {
		t.Error("a fleet that was stopped still answers")
	}
	until(t, "no connection left", func() bool { return f.Stats().Connections == 0 && f.Stats().InFlight == 0 })
}

func TestAuthorityOfTheCluster(t *testing.T) {
	mine, err := NewAuthority("cluster-ca")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	certificate, key := filepath.Join(folder, "ca.crt"), filepath.Join(folder, "ca.key")
	block, err := keyutil.MarshalPrivateKeyToPEM(mine.key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(certificate, mine.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, block, 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := LoadAuthority(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	f, _ := newFleet(t, Options{PodsPerNode: 1, Authority: loaded})
	start(t, f)
	if a := newClient(t, f, true).scrape(t.Context(), f.Nodes()[0]); a.err != nil || a.status != http.StatusOK {
		t.Errorf("scrape with the loaded CA: %d, %v", a.status, a.err)
	}

	leaf, err := mine.issue("leaf", f.Nodes()[0].Address().Addr().AsSlice())
	if err != nil {
		t.Fatal(err)
	}
	notCA := filepath.Join(folder, "leaf.crt")
	leafPEM := pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: leaf.Certificate[0]})
	if err := os.WriteFile(notCA, leafPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, files := range map[string][2]string{
		"no such file":   {filepath.Join(folder, "none"), key},
		"the CA's key":   {certificate, filepath.Join(folder, "none")},
		"is not a CA":    {notCA, key},
		"loading the CA": {key, key},
	} {
		if _, err := LoadAuthority(files[0], files[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("loading %s: error %v, want one that contains %q", fmt.Sprint(files), err, want)
		}
	}
}

// BenchmarkScrape is a whole scrape over TLS and HTTP/2, client included.
func BenchmarkScrape(b *testing.B) {
	f, _ := newFleet(b, Options{})
	start(b, f)
	c := newClient(b, f, true)
	b.ReportAllocs()
	for b.Loop() {
		response, err := c.get(b.Context(), f.Nodes()[0], defaultMetricsPath)
		if err != nil {
			b.Fatal(err)
		}
		size, err := io.Copy(io.Discard, response.Body)
		if err != nil {
			b.Fatal(err)
		}
		_ = response.Body.Close()
		b.SetBytes(size)
	}
}
