// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/point"
)

func TestRequest(t *testing.T) {
	ca := newAuthority(t)
	tests := map[string]struct {
		node *Node
		port int32
		want string
	}{
		"IPv4":             {testNode("n1", "192.0.2.1"), 0, "https://192.0.2.1:10250/metrics/resource"},
		"IPv6":             {testNode("n1", "2001:db8::1"), 0, "https://[2001:db8::1]:10250/metrics/resource"},
		"port of the node": {&Node{Name: "n1", KubeletPort: 10251, Addresses: testNode("", "192.0.2.1").Addresses}, 0, "https://192.0.2.1:10251/metrics/resource"},
		"port of settings": {&Node{Name: "n1", KubeletPort: 10251, Addresses: testNode("", "192.0.2.1").Addresses}, 443, "https://192.0.2.1:443/metrics/resource"},
		"path of the node": {&Node{Name: "n1", Path: "/virtual/resource", Addresses: testNode("", "192.0.2.1").Addresses}, 0, "https://192.0.2.1:10250/virtual/resource"},
		"name":             {&Node{Name: "n1", Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "Node-1.example"}}}, 0, "https://Node-1.example:10250/metrics/resource"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			kubelet := newFakeKubelet(t, ca.issue(nil, "192.0.2.1", "2001:db8::1", "node-1.example"), serve(nodeBody))
			cfg := testSettings()
			cfg.Port = tt.port
			s := newTestSource(t, clock.RealClock{}, ca.pem, kubelet.dial, cfg)
			o := s.scrapeOnce(t.Context(), tt.node)
			if o.failure != nil || o.url != tt.want {
				t.Fatalf("scrape of %s: %v, want %s", o.url, o.failure, tt.want)
			}
			requests, _ := kubelet.seen()
			if len(requests) != 1 {
				t.Fatalf("%d requests, want 1", len(requests))
			}
			r := requests[0]
			got := []string{r.Method, "https://" + r.Host + r.RequestURI, r.Proto, r.Header.Get("Authorization"), r.Header.Get("User-Agent"), r.Header.Get("Accept"), r.Header.Get("Accept-Encoding")}
			want := []string{"GET", tt.want, "HTTP/1.1", "Bearer secret", "metrics-backend-serving/test", "text/plain;version=0.0.4", ""}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTLS has, for each kind of certificate and each mode, whether the kubelet
// gets a request and with it the token.
func TestTLS(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	past := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	future := func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }
	clientOnly := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }

	tests := map[string]struct {
		certificate tls.Certificate
		server      func(*tls.Config)
		mode        v1alpha1.KubeletTLSMode
		caBundle    []byte
		want        v1alpha1.ScrapeReason
		// message is a part of the failure: what the user can do.
		message string
	}{
		"Verify, good":                  {certificate: ca.issue(nil, "192.0.2.1"), mode: v1alpha1.KubeletTLSVerify},
		"Verify, a CA of its own":       {certificate: other.issue(nil, "192.0.2.1"), mode: v1alpha1.KubeletTLSVerify, caBundle: other.pem},
		"Verify, the default CA is not": {certificate: ca.issue(nil, "192.0.2.1"), mode: v1alpha1.KubeletTLSVerify, caBundle: other.pem, want: v1alpha1.ScrapeCertificateUntrusted, message: "caBundle"},
		"Verify, unknown authority":     {certificate: other.issue(nil, "192.0.2.1"), mode: v1alpha1.KubeletTLSVerify, want: v1alpha1.ScrapeCertificateUntrusted, message: "serverTLSBootstrap"},
		"Verify, another address":       {certificate: ca.issue(nil, "192.0.2.2"), mode: v1alpha1.KubeletTLSVerify, want: v1alpha1.ScrapeCertificateUntrusted, message: "addressTypes"},
		"Verify, the name alone":        {certificate: ca.issue(nil, "n1"), mode: v1alpha1.KubeletTLSVerify, want: v1alpha1.ScrapeCertificateUntrusted, message: "addressTypes"},
		"Verify, expired":               {certificate: ca.issue(past, "192.0.2.1"), mode: v1alpha1.KubeletTLSVerify, want: v1alpha1.ScrapeCertificateUntrusted, message: "expired"},
		"Verify, not valid yet":         {certificate: ca.issue(future, "192.0.2.1"), mode: v1alpha1.KubeletTLSVerify, want: v1alpha1.ScrapeCertificateUntrusted, message: "clocks"},
		"Verify, for clients":           {certificate: ca.issue(clientOnly, "192.0.2.1"), mode: v1alpha1.KubeletTLSVerify, want: v1alpha1.ScrapeCertificateUntrusted, message: "renew"},
		"Verify, an old version":        {certificate: ca.issue(nil, "192.0.2.1"), server: func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11 }, mode: v1alpha1.KubeletTLSVerify, want: v1alpha1.ScrapeConnectionFailed},
		"Verify, TLS 1.2":               {certificate: ca.issue(nil, "192.0.2.1"), server: func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, mode: v1alpha1.KubeletTLSVerify},
		"PinOnFirstUse, any first":      {certificate: other.issue(past, "n1"), mode: v1alpha1.KubeletTLSPinOnFirstUse},
		"PinOnFirstUse, an old version": {certificate: ca.issue(nil, "n1"), server: func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11 }, mode: v1alpha1.KubeletTLSPinOnFirstUse, want: v1alpha1.ScrapeConnectionFailed},
		"Skip, any":                     {certificate: other.issue(past, "n1"), mode: v1alpha1.KubeletTLSSkip},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			kubelet := newFakeKubelet(t, tt.certificate, serve(nodeBody))
			if tt.server != nil {
				kubelet.mu.Lock()
				tt.server(kubelet.TLS)
				kubelet.mu.Unlock()
			}
			cfg := testSettings()
			cfg.TLS, cfg.CABundle = tt.mode, tt.caBundle
			s := newTestSource(t, clock.RealClock{}, ca.pem, kubelet.dial, cfg)
			o := s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1"))
			checkFailure(t, o, tt.want, tt.message)
			requests, _ := kubelet.seen()
			if sent := len(requests) > 0; sent != (tt.want == "") {
				t.Errorf("the kubelet got %d requests, with the token", len(requests))
			}
		})
	}
}

func checkFailure(t *testing.T, o *outcome, want v1alpha1.ScrapeReason, message string) {
	t.Helper()
	switch {
	case o == nil:
		t.Fatal("the scrape was cancelled")
	case o.failure == nil && want != "":
		t.Fatalf("the scrape succeeded, want %s", want)
	case o.failure != nil && o.failure.reason != want:
		t.Fatalf("the scrape failed with %s: %v, want %q", o.failure.reason, o.failure, want)
	case o.failure != nil && !strings.Contains(o.failure.Error(), message):
		t.Errorf("the failure %q does not say %q", o.failure, message)
	}
}

func TestPin(t *testing.T) {
	ca := newAuthority(t)
	first, second := ca.issue(nil, "n1"), ca.issue(nil, "n1")
	kubelet := newFakeKubelet(t, first, serve(nodeBody))
	cfg := testSettings()
	cfg.TLS = v1alpha1.KubeletTLSPinOnFirstUse
	s := newTestSource(t, clock.RealClock{}, ca.pem, kubelet.dial, cfg)
	node := testNode("n1", "192.0.2.1")
	again := *node
	again.UID = "uid-2"

	scrape := func(n *Node, want v1alpha1.ScrapeReason) {
		t.Helper()
		before, _ := kubelet.seen()
		checkFailure(t, s.scrapeOnce(t.Context(), n), want, "")
		if after, _ := kubelet.seen(); want != "" && len(after) != len(before) {
			t.Error("the token was sent all the same")
		}
		kubelet.CloseClientConnections()
	}
	scrape(node, "")
	scrape(node, "")
	kubelet.show(second)
	scrape(node, v1alpha1.ScrapeCertificateChanged)
	scrape(node, v1alpha1.ScrapeCertificateChanged)
	kubelet.show(first)
	scrape(node, "")
	// Another node's pin does not matter, and a node that was replaced is new.
	kubelet.show(second)
	scrape(testNode("n2", "192.0.2.1"), "")
	scrape(&again, "")
	kubelet.show(first)
	scrape(&again, v1alpha1.ScrapeCertificateChanged)
	// Another mode, and back: the pins are forgotten.
	for _, mode := range []v1alpha1.KubeletTLSMode{v1alpha1.KubeletTLSSkip, v1alpha1.KubeletTLSPinOnFirstUse} {
		cfg.TLS = mode
		if err := s.Apply(cfg); err != nil {
			t.Fatal(err)
		}
		scrape(&again, "")
	}
	// Other settings do not change them.
	cfg.Interval = time.Minute
	if err := s.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	kubelet.show(second)
	scrape(&again, v1alpha1.ScrapeCertificateChanged)
}

// TestPinNeedsKey checks that a certificate is not pinned on the word of a peer
// that does not have its key.
func TestPinNeedsKey(t *testing.T) {
	ca := newAuthority(t)
	right, stolen := ca.issue(nil, "n1"), ca.issue(nil, "n1")
	stolen.PrivateKey = newKey(t)
	stolen.Leaf = nil
	kubelet := newFakeKubelet(t, stolen, serve(nodeBody))
	cfg := testSettings()
	cfg.TLS = v1alpha1.KubeletTLSPinOnFirstUse
	s := newTestSource(t, clock.RealClock{}, ca.pem, kubelet.dial, cfg)
	checkFailure(t, s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1")), v1alpha1.ScrapeConnectionFailed, "")
	kubelet.show(right)
	checkFailure(t, s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1")), "", "")
}

func TestAnswers(t *testing.T) {
	ca := newAuthority(t)
	elsewhere := newFakeKubelet(t, ca.issue(nil, "192.0.2.1"), serve(nodeBody))
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); _, _ = w.Write([]byte(nodeBody)) }
	}
	abort := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush(); panic(http.ErrAbortHandler) }

	tests := map[string]struct {
		handler http.HandlerFunc
		want    v1alpha1.ScrapeReason
		message string
	}{
		"good":     {serve(nodeBody), "", ""},
		"401":      {status(401), v1alpha1.ScrapeUnauthorized, "authentication.webhook.enabled"},
		"403":      {status(403), v1alpha1.ScrapeForbidden, "nodes/metrics"},
		"404":      {status(404), v1alpha1.ScrapeBadStatus, v1alpha1.AnnotationMetricsPath},
		"500":      {status(500), v1alpha1.ScrapeBadStatus, "HTTP 500"},
		"204":      {status(204), v1alpha1.ScrapeBadStatus, "HTTP 204"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }, v1alpha1.ScrapeBadStatus, "redirects are not followed"},
		"permanent one": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusPermanentRedirect)
		}, v1alpha1.ScrapeBadStatus, "redirects are not followed"},
		"empty":          {serve(""), v1alpha1.ScrapeMalformedBody, "no resource metrics"},
		"garbage":        {serve("\x00\xff<html>\n"), v1alpha1.ScrapeMalformedBody, "no resource metrics"},
		"nothing usable": {serve("node_cpu_usage_seconds_total NaN\nnode_memory_working_set_bytes -1\n"), v1alpha1.ScrapeMalformedBody, `NotFinite: 1, Negative: 1; the first: "node_cpu_usage_seconds_total NaN"`},
		"clock ahead":    {serve(fmt.Sprintf("node_cpu_usage_seconds_total 1 %d\n", time.Now().Add(10*time.Minute).UnixMilli())), v1alpha1.ScrapeMalformedBody, "check the node's clock"},
		"kubelet failed": {serve("resource_scrape_error 1\n"), v1alpha1.ScrapeMalformedBody, "resource_scrape_error"},
		"compressed": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write([]byte(nodeBody))
			_ = z.Close()
		}, v1alpha1.ScrapeMalformedBody, ""},
		"reset before the answer": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, v1alpha1.ScrapeConnectionFailed, "connection broke"},
		"reset in the body": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(nodeBody))
			abort(w)
		}, v1alpha1.ScrapeConnectionFailed, "before the answer was complete"},
		"shorter than announced": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(nodeBody))
			abort(w)
		}, v1alpha1.ScrapeConnectionFailed, "before the answer was complete"},
		"announced too large": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "2000000000")
			_, _ = w.Write([]byte(nodeBody))
			abort(w)
		}, v1alpha1.ScrapeBodyTooLarge, "maxBodySize"},
		"huge header": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
			_, _ = w.Write([]byte(nodeBody))
		}, v1alpha1.ScrapeConnectionFailed, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			kubelet := newFakeKubelet(t, ca.issue(nil, "192.0.2.1"), tt.handler)
			s := newTestSource(t, clock.RealClock{}, ca.pem, kubelet.dial, testSettings())
			checkFailure(t, s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1")), tt.want, tt.message)
		})
	}
	if requests, _ := elsewhere.seen(); len(requests) > 0 {
		t.Errorf("a redirect was followed: %d requests", len(requests))
	}
}

// TestHugeBody reads a body that does not end.
func TestHugeBody(t *testing.T) {
	ca := newAuthority(t)
	line := []byte("# " + strings.Repeat("x", 8<<10) + "\n")
	kubelet := newFakeKubelet(t, ca.issue(nil, "192.0.2.1"), func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	})
	s := newTestSource(t, clock.RealClock{}, ca.pem, kubelet.dial, testSettings())
	checkFailure(t, s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1")), v1alpha1.ScrapeBodyTooLarge, "maxBodySize")
}

func TestNoConnection(t *testing.T) {
	ca := newAuthority(t)
	closed := newFakeKubelet(t, ca.issue(nil, "192.0.2.1"), serve(nodeBody))
	closed.Close()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: serve(nodeBody)}
	go func() { _ = server.Serve(plain) }()
	t.Cleanup(func() { _ = server.Close() })

	badPath := testNode("n1", "192.0.2.1")
	badPath.Path = "/a/../b"
	tests := map[string]struct {
		node    *Node
		dial    dialFunc
		want    v1alpha1.ScrapeReason
		message string
	}{
		"refused":    {testNode("n1", "192.0.2.1"), closed.dial, v1alpha1.ScrapeConnectionFailed, "check that the kubelet runs"},
		"not TLS":    {testNode("n1", "192.0.2.1"), dialTo(plain.Addr().String()), v1alpha1.ScrapeConnectionFailed, "does not speak TLS"},
		"no address": {&Node{Name: "n1"}, closed.dial, v1alpha1.ScrapeNoAddress, "addressTypes"},
		"bad path":   {badPath, closed.dial, v1alpha1.ScrapeNoAddress, v1alpha1.AnnotationMetricsPath},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newTestSource(t, clock.RealClock{}, ca.pem, tt.dial, testSettings())
			checkFailure(t, s.scrapeOnce(t.Context(), tt.node), tt.want, tt.message)
		})
	}
}

func TestHanging(t *testing.T) {
	ca := newAuthority(t)
	tests := map[string]func(w http.ResponseWriter, r *http.Request, hang func()){
		"before the answer": func(_ http.ResponseWriter, _ *http.Request, hang func()) { hang() },
		"in the body": func(w http.ResponseWriter, _ *http.Request, hang func()) {
			_, _ = w.Write([]byte("node_cpu_usage_seconds_total 1\n"))
			_ = http.NewResponseController(w).Flush()
			hang()
		},
	}
	for name, handler := range tests {
		t.Run(name, func(t *testing.T) {
			hanging, clock := make(chan struct{}), clocktesting.NewFakeClock(time.Now())
			kubelet := newFakeKubelet(t, ca.issue(nil, "192.0.2.1"), func(w http.ResponseWriter, r *http.Request) {
				handler(w, r, func() { close(hanging); <-r.Context().Done() })
			})
			s := newTestSource(t, clock, ca.pem, kubelet.dial, testSettings())
			go func() { <-hanging; clock.Step(testSettings().Timeout) }()
			checkFailure(t, s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1")), v1alpha1.ScrapeTimeout, "10s")
		})
	}
	t.Run("in the handshake", func(t *testing.T) {
		// A peer that accepts, and says nothing.
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		clock := clocktesting.NewFakeClock(time.Now())
		closed := make(chan error, 1)
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1)) // the ClientHello has begun
			clock.Step(testSettings().Timeout)
			_, err = conn.Read(make([]byte, 1<<20))
			for err == nil {
				_, err = conn.Read(make([]byte, 1<<20))
			}
			closed <- err
		}()
		s := newTestSource(t, clock, ca.pem, dialTo(listener.Addr().String()), testSettings())
		checkFailure(t, s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1")), v1alpha1.ScrapeTimeout, "10s")
		<-closed // the dial does not outlive the scrape
	})
	t.Run("and the source stops", func(t *testing.T) {
		hanging := make(chan struct{})
		kubelet := newFakeKubelet(t, ca.issue(nil, "192.0.2.1"), func(_ http.ResponseWriter, r *http.Request) {
			close(hanging)
			<-r.Context().Done()
		})
		s := newTestSource(t, clocktesting.NewFakeClock(time.Now()), ca.pem, kubelet.dial, testSettings())
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-hanging; cancel() }()
		if o := s.scrapeOnce(ctx, testNode("n1", "192.0.2.1")); o != nil {
			t.Errorf("the outcome of a scrape that was cancelled: %+v", o)
		}
	})
}

func TestConnectionReuse(t *testing.T) {
	ca := newAuthority(t)
	kubelet := newFakeKubelet(t, ca.issue(nil, "192.0.2.1", "192.0.2.2"), serve(nodeBody))
	cfg := testSettings()
	s := newTestSource(t, clock.RealClock{}, ca.pem, kubelet.dial, cfg)
	node := testNode("n1", "192.0.2.1")
	moved := testNode("n1", "192.0.2.2")
	apply := func(change func(*Settings)) func() {
		return func() {
			change(&cfg)
			if err := s.Apply(cfg); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, step := range []struct {
		what        string
		do          func()
		node        *Node
		connections int
	}{
		{"first", func() {}, node, 1},
		{"again", func() {}, node, 1},
		{"another interval", apply(func(s *Settings) { s.Interval = time.Minute }), node, 1},
		{"another CA", apply(func(s *Settings) { s.CABundle = ca.pem }), node, 2},
		{"the same CA", apply(func(s *Settings) { s.CABundle = append([]byte{}, ca.pem...) }), node, 2},
		{"another mode", apply(func(s *Settings) { s.TLS = v1alpha1.KubeletTLSSkip }), node, 3},
		{"another address", func() {}, moved, 4},
		{"again there", func() {}, moved, 4},
		{"another node at that address", func() {}, testNode("n2", "192.0.2.2"), 5},
	} {
		step.do()
		checkFailure(t, s.scrapeOnce(t.Context(), step.node), "", "")
		if _, connections := kubelet.seen(); connections != step.connections {
			t.Errorf("%s: %d connections so far, want %d", step.what, connections, step.connections)
		}
	}
}

func TestCredentials(t *testing.T) {
	ca := newAuthority(t)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	client := ca.issue(nil, "serving")
	certPEM, keyPEM := encodePair(t, client)
	tests := map[string]struct {
		config            rest.Config
		wantAuthorization string
		wantCertificate   bool
	}{
		"none":               {},
		"token":              {config: rest.Config{BearerToken: "secret"}, wantAuthorization: "Bearer secret"},
		"token file":         {config: rest.Config{BearerToken: "older", BearerTokenFile: file}, wantAuthorization: "Bearer from-file"},
		"client certificate": {config: rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: certPEM, KeyData: keyPEM}}, wantCertificate: true},
		// The flag is for kube-apiserver alone.
		"insecure": {config: rest.Config{BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, wantAuthorization: "Bearer secret"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			kubelet := newFakeKubelet(t, ca.issue(nil, "192.0.2.1"), serve(nodeBody))
			kubelet.mu.Lock()
			kubelet.TLS.ClientAuth = tls.RequestClientCert
			kubelet.mu.Unlock()
			s, err := NewSource(Options{
				Store: point.NewStore(clock.RealClock{}, time.Minute), Clock: clock.RealClock{},
				RestConfig: &tt.config, DefaultCA: ca.pem, Dial: kubelet.dial,
			}, testSettings())
			if err != nil {
				t.Fatal(err)
			}
			defer s.stop()
			checkFailure(t, s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1")), "", "")
			requests, _ := kubelet.seen()
			if got := requests[0].Header.Get("Authorization"); got != tt.wantAuthorization {
				t.Errorf("Authorization: %q, want %q", got, tt.wantAuthorization)
			}
			if got := len(requests[0].TLS.PeerCertificates) > 0; got != tt.wantCertificate {
				t.Errorf("client certificate sent: %v, want %v", got, tt.wantCertificate)
			}
		})
	}
}

func TestScrapePublishes(t *testing.T) {
	ca := newAuthority(t)
	clock := clocktesting.NewFakeClock(epoch)
	var body atomic.Value
	kubelet := newFakeKubelet(t, ca.issue(nil, "192.0.2.1"), func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body.Load().(string)) })
	s := newTestSource(t, clock, ca.pem, kubelet.dial, testSettings())
	nodeKey, podKey := point.Key{Name: "n1"}, point.Key{Namespace: "ns", Name: "p"}
	s.store.Nodes.SetMeta(nodeKey, &point.Meta{UID: "u"})
	s.store.Pods.SetMeta(podKey, &point.Meta{UID: "u"})
	scrape := func(at int, text string) {
		t.Helper()
		body.Store(text)
		clock.SetTime(sec(float64(at)))
		checkFailure(t, s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1")), "", "")
	}
	text := func(cpu, at float64) string {
		a := answers(says("a", cpu, at))
		a.node = &reported{cpu: cpu, at: at, memory: 9, swap: missing}
		return a.text()
	}
	scrape(0, text(100, 0))
	if s.store.Nodes.Get(nodeKey) != nil || s.store.Pods.Get(podKey) != nil {
		t.Error("points after one sample")
	}
	scrape(15, text(130, 15)+"container_cpu_usage_seconds_total{} 1\n")
	node, pod := s.store.Nodes.Get(nodeKey), s.store.Pods.Get(podKey)
	if node == nil || pod == nil || node.Point.Usages[0].CPU != 2e9 || pod.Point.Usages[0].CPU != 2e9 {
		t.Fatalf("points after two samples: %+v, %+v", node, pod)
	}
}
