// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	certificates "github.com/metricsbackend/metrics-backend-operator/test/authority"
)

// authority issues certificates.
type authority struct {
	t   *testing.T
	ca  *certificates.Authority
	pem []byte
}

func newAuthority(t *testing.T) *authority {
	ca, err := certificates.New("test CA")
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t: t, ca: ca, pem: ca.PEM}
}

// issue issues a certificate for the addresses; change may be nil.
func (a *authority) issue(change func(*x509.Certificate), addresses ...string) tls.Certificate {
	a.t.Helper()
	var changes []certificates.Change
	if change != nil {
		changes = append(changes, change)
	}
	leaf, err := a.ca.Issue("system:node:n1", addresses, changes...)
	if err != nil {
		a.t.Fatal(err)
	}
	return leaf.TLS
}

// fakeKubelet is a server on loopback. Its dial ignores the address.
type fakeKubelet struct {
	*httptest.Server
	mu sync.Mutex
	// requests are those received; connections counts connections.
	requests    []*http.Request
	connections int
}

func (k *fakeKubelet) seen() (requests []*http.Request, connections int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]*http.Request{}, k.requests...), k.connections
}

// show sets the certificate for new connections.
func (k *fakeKubelet) show(certificate tls.Certificate) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.TLS.Certificates = []tls.Certificate{certificate}
}

func newFakeKubelet(t *testing.T, certificate tls.Certificate, handler http.HandlerFunc) *fakeKubelet {
	k := &fakeKubelet{}
	k.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		k.requests = append(k.requests, r)
		k.mu.Unlock()
		handler(w, r)
	}))
	k.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	k.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		c := k.TLS.Clone()
		c.GetConfigForClient = nil
		return c, nil
	}
	k.EnableHTTP2 = true
	k.Config.ErrorLog = log.New(io.Discard, "", 0)
	k.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			k.mu.Lock()
			k.connections++
			k.mu.Unlock()
		}
	}
	k.StartTLS()
	t.Cleanup(k.Close)
	return k
}

// dial connects to the fake kubelet. It ignores the address.
func (k *fakeKubelet) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return dialTo(k.Listener.Addr().String())(ctx, network, "")
}

const nodeBody = "node_cpu_usage_seconds_total 1\nnode_memory_working_set_bytes 1\n"

func serve(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

func testSettings() Settings {
	return Settings{
		Interval: 15 * time.Second, Timeout: 10 * time.Second, MaxConcurrent: 8, MaxBodySize: 1 << 20,
		AddressTypes: v1alpha1.DefaultAddressTypes(), TLS: v1alpha1.KubeletTLSVerify,
	}
}

func testNode(name, address string) *Node {
	return &Node{Name: name, UID: "uid-1", Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}}
}

// newTestSource returns a source with the token "secret" and a dial function.
func newTestSource(t *testing.T, c clock.Clock, ca []byte, dial dialFunc, cfg Settings) *Source {
	t.Helper()
	s, err := NewSource(Options{
		Store: samplestore.NewStore(c, 90*time.Second), Clock: c, Dial: dial, DefaultCA: ca,
		RestConfig: &rest.Config{
			Host: "https://kube-apiserver.invalid", BearerToken: "secret", UserAgent: "metrics-backend-serving/test",
			TLSClientConfig: rest.TLSClientConfig{ServerName: "kube-apiserver.invalid", CAData: []byte("kube-apiserver's")},
		},
	}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

// scrapeOnce scrapes a node as the scheduler does.
func (s *Source) scrapeOnce(ctx context.Context, n *Node) *scrapeResult {
	s.SetNode(n)
	s.mu.Lock()
	t, cfg := s.targets[n.Name], s.settings
	s.mu.Unlock()
	return s.scrape(ctx, t, n, cfg)
}

// dialTo returns a dial function that connects to one address.
func dialTo(address string) dialFunc {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}

func encodePair(t *testing.T, c tls.Certificate) (certificate, key []byte) {
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}
