// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	certificates "github.com/metricsbackend/metrics-backend-operator/test/authority"
)

// TestTLS checks for each kind of certificate and each mode whether the kubelet gets
// a request, and with it the token.
func TestTLS(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	past := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	future := func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }
	clientOnly := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }

	tests := map[string]struct {
		certificate tls.Certificate
		server      func(*tls.Config)
		mode        v1alpha1.KubeletTLSMode
		caBundle    []byte
		want        v1alpha1.ScrapeReason
		// message is a part of the failure.
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
		"Skip, any":                     {certificate: other.issue(past, "n1"), mode: v1alpha1.KubeletTLSInsecureSkipTLSVerify},
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

// TestPin checks what is pinned without any CA.
func TestPin(t *testing.T) {
	ca := newAuthority(t)
	first, second := ca.issue(nil, "n1"), ca.issue(nil, "n1")
	kubelet := newFakeKubelet(t, first, serve(nodeBody))
	cfg := testSettings()
	cfg.TLS = v1alpha1.KubeletTLSPinOnFirstUse
	s := newTestSource(t, clock.RealClock{}, nil, kubelet.dial, cfg)
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
	// Pins of other nodes do not matter, and a replaced node has none.
	kubelet.show(second)
	scrape(testNode("n2", "192.0.2.1"), "")
	scrape(&again, "")
	kubelet.show(first)
	scrape(&again, v1alpha1.ScrapeCertificateChanged)
	// Another mode and back drops the pins.
	for _, mode := range []v1alpha1.KubeletTLSMode{v1alpha1.KubeletTLSInsecureSkipTLSVerify, v1alpha1.KubeletTLSPinOnFirstUse} {
		cfg.TLS = mode
		mustApply(t, s, cfg)
		scrape(&again, "")
	}
	// Other settings do not change them.
	cfg.Interval = time.Minute
	mustApply(t, s, cfg)
	kubelet.show(second)
	scrape(&again, v1alpha1.ScrapeCertificateChanged)
}

// kubeletsOwn returns what a kubelet makes if it is given no certificate.
func kubeletsOwn(t *testing.T, host string, maxAge time.Duration) tls.Certificate {
	t.Helper()
	certificate, key, err := certutil.GenerateSelfSignedCertKeyWithOptions(certutil.SelfSignedCertKeyOptions{Host: host, MaxAge: maxAge})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// likeOwn returns a certificate of this form: of leaf for host, and of the authority that signed it.
func likeOwn(t *testing.T, authority, leaf, host string, changeAuthority, changeLeaf certificates.Change) tls.Certificate {
	t.Helper()
	ca, err := certificates.New(authority, changeAuthority)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := ca.Issue(leaf, []string{host}, changeLeaf)
	if err != nil {
		t.Fatal(err)
	}
	issued.TLS.Certificate = append(issued.TLS.Certificate, ca.Certificate.Raw)
	return issued.TLS
}

// TestVerifyOrPin checks which certificates are accepted at the first contact, and how each is
// counted.
func TestVerifyOrPin(t *testing.T) {
	ca := newAuthority(t)
	same := func(*x509.Certificate) {}
	expired := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	clientOnly := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }
	noCA := func(c *x509.Certificate) { c.IsCA = false }
	made := kubeletsOwn(t, "n1", 0)
	like := likeOwn(t, "n1-ca@1", "n1@1", "n1", same, same)
	others := likeOwn(t, "n1-ca@1", "n1@1", "n1", same, same)
	intermediate := ca.issue(func(c *x509.Certificate) {
		c.Subject.CommonName, c.IsCA, c.BasicConstraintsValid, c.ExtKeyUsage = "n1-ca@1", true, true, nil
		c.KeyUsage |= x509.KeyUsageCertSign
	})
	parent, err := x509.ParseCertificate(intermediate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	sub := &certificates.Authority{Certificate: parent, Key: intermediate.PrivateKey.(crypto.Signer)}
	signedBySub, err := sub.Issue("n1@1", []string{"n1"})
	if err != nil {
		t.Fatal(err)
	}
	signedBySub.TLS.Certificate = append(signedBySub.TLS.Certificate, intermediate.Certificate[0])
	chain := func(of tls.Certificate, certificates ...[]byte) tls.Certificate {
		of.Certificate = certificates
		return of
	}
	node := testNode("n1", "192.0.2.1")
	v6 := testNode("n1", "2001:db8::1")
	hostname := testNode("i-0123", "192.0.2.1")
	hostname.Addresses = append(hostname.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "N1"})
	hostnames := testNode("i-0123", "192.0.2.1")
	hostnames.Addresses = append(hostnames.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "n0"}, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "n1"})
	internalDNS := testNode("i-0123", "192.0.2.1")
	internalDNS.Addresses = append(internalDNS.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: "n1"})
	named := testNode("192.0.2.1", "192.0.2.1")
	byName := testNode("n1", "192.0.2.1")
	byName.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n1"}}

	type result struct {
		Reason           v1alpha1.ScrapeReason
		Verified, Pinned int
	}
	verified, pinned := result{Verified: 1}, result{Pinned: 1}
	untrusted := result{Reason: v1alpha1.ScrapeCertificateUntrusted}
	tests := map[string]struct {
		node        *Node
		certificate tls.Certificate
		// verified: the status says that a kubelet was.
		verified bool
		caBundle []byte
		want     result
		message  string
	}{
		"signed by the cluster":                  {certificate: ca.issue(nil, "192.0.2.1"), want: verified},
		"signed by the CA of the settings":       {certificate: like, node: byName, caBundle: encodeCertificate(like.Certificate[1]), want: verified},
		"signed, IPv6":                           {node: v6, certificate: ca.issue(nil, "2001:db8::1"), want: verified},
		"signed, for another address":            {certificate: ca.issue(nil, "192.0.2.2"), want: untrusted, message: "addressTypes"},
		"the kubelet's own":                      {certificate: made, want: pinned},
		"the kubelet's own, ECDSA":               {certificate: like, want: pinned},
		"the kubelet's own, IPv6":                {node: v6, certificate: made, want: pinned},
		"the kubelet's own, for the hostname":    {node: hostname, certificate: made, want: pinned},
		"the kubelet's own, the name an address": {node: named, certificate: kubeletsOwn(t, "192.0.2.1", 0), want: pinned},
		"the kubelet's own, others are signed":   {certificate: made, verified: true, want: untrusted, message: "VerifyOrPin"},
		"for another type of address":            {node: internalDNS, certificate: made, want: untrusted},
		"for another name":                       {node: testNode("n2", "192.0.2.1"), certificate: made, want: untrusted},
		"for a longer name":                      {node: testNode("n", "192.0.2.1"), certificate: made, want: untrusted},
		"another name than the authority's":      {certificate: likeOwn(t, "n1-ca@1", "n1@1", "n2", same, same), want: untrusted},
		"expired":                                {certificate: likeOwn(t, "n1-ca@1", "n1@1", "n1", same, expired), want: untrusted, message: "expired"},
		"expired, a kubelet's own":               {certificate: kubeletsOwn(t, "n1", time.Minute), want: untrusted, message: "delete kubelet.crt"},
		"the authority has expired":              {certificate: likeOwn(t, "n1-ca@1", "n1@1", "n1", expired, same), want: untrusted},
		"for clients":                            {certificate: likeOwn(t, "n1-ca@1", "n1@1", "n1", same, clientOnly), want: untrusted},
		"of no authority":                        {certificate: likeOwn(t, "n1-ca@1", "n1@1", "n1", noCA, same), want: untrusted},
		"of another node's authority":            {certificate: likeOwn(t, "n2-ca@1", "n1@1", "n1", same, same), want: untrusted},
		"of an authority for many":               {certificate: likeOwn(t, "company CA", "n1@1", "n1", same, same), want: untrusted, message: "addressTypes"},
		"not by a kubelet":                       {certificate: likeOwn(t, "n1-ca@1", "n1", "n1", same, same), want: untrusted},
		"the authority is not its own root":      {certificate: signedBySub.TLS, want: untrusted},
		"the authority is missing":               {certificate: chain(like, like.Certificate[0]), want: untrusted},
		"of another key of that name":            {certificate: chain(like, like.Certificate[0], others.Certificate[1]), want: untrusted},
		"for the second hostname":                {node: hostnames, certificate: made, want: untrusted},
		"one more certificate":                   {certificate: chain(like, like.Certificate[0], like.Certificate[1], ca.ca.Certificate.Raw), want: untrusted},
		"signed by itself":                       {certificate: ownRoot(t, "n1@1", "n1"), want: untrusted},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			kubelet := newFakeKubelet(t, tt.certificate, serve(nodeBody))
			cfg := testSettings()
			cfg.TLS, cfg.Verified, cfg.CABundle = v1alpha1.KubeletTLSVerifyOrPin, tt.verified, tt.caBundle
			s := newTestSource(t, clock.RealClock{}, ca.pem, kubelet.dial, cfg)
			o := s.scrapeOnce(t.Context(), cmp.Or(tt.node, node))
			report := s.Report()
			got := result{Verified: report.Verified, Pinned: report.Pinned}
			if o.failure != nil {
				got.Reason = o.failure.reason
				if !strings.Contains(o.failure.Error(), tt.message) {
					t.Errorf("the failure %q does not say %q", o.failure, tt.message)
				}
			}
			if diff := gocmp.Diff(tt.want, got); diff != "" {
				t.Errorf("scrape and report (-want +got):\n%s", diff)
			}
			requests, _ := kubelet.seen()
			if sent := len(requests) > 0; sent != (tt.want.Reason == "") {
				t.Errorf("the kubelet got %d requests, with the token", len(requests))
			}
		})
	}
}

// TestVerifiedBySamples: a server that the CA has signed, and that is no kubelet, such as kube-apiserver, where a node's status
// may lead to, ends no pins.
func TestVerifiedBySamples(t *testing.T) {
	ca := newAuthority(t)
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"forbidden":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, "0/1"},
		"not found":      {http.NotFound, "0/1"},
		"something else": {serve(`{"kind":"Status"}` + "\n"), "0/1"},
		"other metrics":  {serve("up 1\n"), "0/1"},
		"samples":        {serve(nodeBody), "1/0"},
	} {
		t.Run(name, func(t *testing.T) {
			own, signed := newFakeKubelet(t, kubeletsOwn(t, "n1", 0), serve(nodeBody)), newFakeKubelet(t, ca.issue(nil, "192.0.2.2"), tc.answer)
			cfg := testSettings()
			cfg.TLS = v1alpha1.KubeletTLSVerifyOrPin
			s := newTestSource(t, clock.RealClock{}, ca.pem, func(ctx context.Context, network, to string) (net.Conn, error) {
				if strings.HasPrefix(to, "192.0.2.2:") {
					return signed.dial(ctx, network, to)
				}
				return own.dial(ctx, network, to)
			}, cfg)
			s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1"))
			s.scrapeOnce(t.Context(), testNode("n2", "192.0.2.2"))
			report := s.Report()
			if got := fmt.Sprintf("%d/%d", report.Verified, report.Pinned); got != tc.want {
				t.Errorf("verified/pinned %s, want %s", got, tc.want)
			}
		})
	}
}

// TestExpiring: the end of a pinned certificate is reported before, where it is refused then.
func TestExpiring(t *testing.T) {
	for name, tc := range map[string]struct {
		mode   v1alpha1.KubeletTLSMode
		maxAge time.Duration
		want   int
	}{
		"in 20 days":        {v1alpha1.KubeletTLSVerifyOrPin, 20 * 24 * time.Hour, 1},
		"in 40 days":        {v1alpha1.KubeletTLSVerifyOrPin, 40 * 24 * time.Hour, 0},
		"its dates are not": {v1alpha1.KubeletTLSPinOnFirstUse, 20 * 24 * time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testSettings()
			cfg.TLS = tc.mode
			s := newTestSource(t, clock.RealClock{}, newAuthority(t).pem, newFakeKubelet(t, kubeletsOwn(t, "n1", tc.maxAge), serve(nodeBody)).dial, cfg)
			s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1"))
			if report := s.Report(); report.Pinned != 1 || report.Expiring != tc.want {
				t.Errorf("%d pinned, %d of these expire, want 1 and %d", report.Pinned, report.Expiring, tc.want)
			}
		})
	}
}

// ownRoot returns a certificate that is its own authority, and is sent twice.
func ownRoot(t *testing.T, name, host string) tls.Certificate {
	t.Helper()
	ca, err := certificates.New(name, func(c *x509.Certificate) { c.DNSNames = []string{host} })
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{ca.Certificate.Raw, ca.Certificate.Raw}, PrivateKey: ca.Key}
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der})
}

// TestVerifyOrPinInTime: pins live until a CA has verified any kubelet, which this process sees,
// or the status says.
func TestVerifyOrPinInTime(t *testing.T) {
	const changed, untrusted = v1alpha1.ScrapeCertificateChanged, v1alpha1.ScrapeCertificateUntrusted
	ca, company := newAuthority(t), newAuthority(t)
	same := func(*x509.Certificate) {}
	own := likeOwn(t, "n1-ca@1", "n1@1", "n1", same, same)
	renewed := likeOwn(t, "n1-ca@2", "n1@2", "n1", same, same)
	n2 := likeOwn(t, "n2-ca@1", "n2@1", "n2", same, same)
	signed := ca.issue(nil, "192.0.2.1")
	type step struct {
		what string
		// node is n1 unless set; show is its new certificate, with which it starts again.
		node   string
		show   *tls.Certificate
		change func(*Settings)
		want   v1alpha1.ScrapeReason
		// report is "VERIFIED/PINNED" afterwards.
		report string
	}
	pinned := []step{{what: "first contact", show: &own, report: "0/1"}, {what: "another node", node: "n2", show: &n2, report: "0/2"}}
	tests := map[string][]step{
		"another certificate": append(pinned,
			step{what: "the same after a restart", show: &own, report: "0/2"},
			step{what: "another of its own", show: &renewed, want: changed, report: "0/2"},
			step{what: "of another authority", show: new(company.issue(nil, "192.0.2.1")), want: untrusted, report: "0/2"},
			step{what: "the first again", show: &own, report: "0/2"},
			step{what: "other settings", show: &renewed, change: func(s *Settings) { s.Interval = time.Minute }, want: changed, report: "0/2"},
		),
		"this process verifies one": append(pinned,
			step{what: "n1 is signed", show: &signed, report: "1/0"},
			step{what: "n2 is not pinned any more", node: "n2", want: untrusted, report: "1/0"},
			step{what: "n1 goes back", show: &own, want: untrusted, report: "1/0"},
			step{what: "another CA", change: func(s *Settings) { s.CABundle = company.pem }, want: untrusted, report: "0/0"},
			step{what: "another mode", change: func(s *Settings) { s.TLS, s.CABundle = v1alpha1.KubeletTLSPinOnFirstUse, nil }, report: "0/1"},
			step{what: "and back", change: func(s *Settings) { s.TLS = v1alpha1.KubeletTLSVerifyOrPin }, want: untrusted, report: "0/0"},
		),
		"the status says so": append(pinned,
			step{what: "on a connection that is open", change: func(s *Settings) { s.Verified = true }, want: untrusted, report: "0/0"},
			step{what: "it is not taken back", change: func(s *Settings) { s.Verified = false }, want: untrusted, report: "0/0"},
			step{what: "n1 is signed", show: &signed, report: "1/0"},
		),
		"verified with Verify": {
			{what: "signed", show: &signed, change: func(s *Settings) { s.TLS = v1alpha1.KubeletTLSVerify }, report: "1/0"},
			{what: "self-signed with the default", show: &own, change: func(s *Settings) { s.TLS = v1alpha1.KubeletTLSVerifyOrPin }, want: untrusted, report: "0/0"},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			kubelets := map[string]*fakeKubelet{"n1": newFakeKubelet(t, own, serve(nodeBody)), "n2": newFakeKubelet(t, n2, serve(nodeBody))}
			cfg := testSettings()
			cfg.TLS = v1alpha1.KubeletTLSVerifyOrPin
			address := map[string]string{"n1": "192.0.2.1", "n2": "192.0.2.2"}
			s := newTestSource(t, clock.RealClock{}, ca.pem, func(ctx context.Context, network, to string) (net.Conn, error) {
				for name, a := range address {
					if strings.HasPrefix(to, a+":") {
						return kubelets[name].dial(ctx, network, to)
					}
				}
				return nil, fmt.Errorf("nothing listens at %s", to)
			}, cfg)
			for _, step := range steps {
				node := cmp.Or(step.node, "n1")
				if step.show != nil {
					kubelets[node].show(*step.show)
					kubelets[node].CloseClientConnections()
				}
				if step.change != nil {
					step.change(&cfg)
					mustApply(t, s, cfg)
				}
				o := s.scrapeOnce(t.Context(), testNode(node, address[node]))
				got := ""
				if o.failure != nil {
					got = string(o.failure.reason)
				}
				report := s.Report()
				if diff := gocmp.Diff([]string{string(step.want), step.report}, []string{got, fmt.Sprintf("%d/%d", report.Verified, report.Pinned)}); diff != "" {
					t.Errorf("%s: reason of the failure, verified/pinned (-want +got):\n%s", step.what, diff)
				}
			}
		})
	}
}

// TestLongCertificate checks that the length of a failure is bounded.
func TestLongCertificate(t *testing.T) {
	ca := newAuthority(t)
	many := func(c *x509.Certificate) {
		for i := range 99 {
			c.IPAddresses = append(c.IPAddresses, net.ParseIP(fmt.Sprintf("2001:db8:1111:2222:3333:4444:5555:%x", i)))
		}
	}
	kubelet := newFakeKubelet(t, ca.issue(many, "n1"), serve(nodeBody))
	s := newTestSource(t, clock.RealClock{}, ca.pem, kubelet.dial, testSettings())
	o := s.scrapeOnce(t.Context(), testNode("n1", "2001:db8::1"))
	checkFailure(t, o, v1alpha1.ScrapeCertificateUntrusted, "addressTypes")
	if text := o.failure.Error(); len(text) > maxMessage || !strings.HasSuffix(text, "…") {
		t.Errorf("a message of %d bytes: %s", len(text), text)
	}
}

// TestPinNeedsKey checks that a certificate is only pinned if the peer has its key.
func TestPinNeedsKey(t *testing.T) {
	ca := newAuthority(t)
	right, stolen := ca.issue(nil, "n1"), ca.issue(nil, "n1")
	stolen.PrivateKey = right.PrivateKey
	stolen.Leaf = nil
	kubelet := newFakeKubelet(t, stolen, serve(nodeBody))
	cfg := testSettings()
	cfg.TLS = v1alpha1.KubeletTLSPinOnFirstUse
	s := newTestSource(t, clock.RealClock{}, ca.pem, kubelet.dial, cfg)
	checkFailure(t, s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1")), v1alpha1.ScrapeConnectionFailed, "")
	kubelet.show(right)
	checkFailure(t, s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1")), "", "")
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
			mustApply(t, s, cfg)
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
		{"another mode", apply(func(s *Settings) { s.TLS = v1alpha1.KubeletTLSInsecureSkipTLSVerify }), node, 3},
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
		tokens            transport.ResettableTokenSource
		wantAuthorization string
		wantCertificate   bool
	}{
		"none":               {},
		"token":              {config: rest.Config{BearerToken: "secret"}, wantAuthorization: "Bearer secret"},
		"token file":         {config: rest.Config{BearerToken: "older", BearerTokenFile: file}, wantAuthorization: "Bearer from-file"},
		"missing token file": {config: rest.Config{BearerToken: "older", BearerTokenFile: file + "-missing"}, wantAuthorization: "Bearer older"},
		"client certificate": {config: rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: certPEM, KeyData: keyPEM}}, wantCertificate: true},
		// The flag is for kube-apiserver alone.
		"insecure": {config: rest.Config{BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, wantAuthorization: "Bearer secret"},
		"tokens instead of all others": {
			config: rest.Config{BearerToken: "secret", BearerTokenFile: file, TLSClientConfig: rest.TLSClientConfig{CertData: certPEM, KeyData: keyPEM}},
			tokens: &fakeTokens{token: "of-scrapes"}, wantAuthorization: "Bearer of-scrapes",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			kubelet := newFakeKubelet(t, ca.issue(nil, "192.0.2.1"), serve(nodeBody))
			kubelet.mu.Lock()
			kubelet.TLS.ClientAuth = tls.RequestClientCert
			kubelet.mu.Unlock()
			s, err := NewSource(Options{
				Store: samplestore.NewStore(clock.RealClock{}, time.Minute), Clock: clock.RealClock{},
				RestConfig: &tt.config, Tokens: tt.tokens, DefaultCA: ca.pem, Dial: kubelet.dial,
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

// fakeTokens has a token, or an error, and counts resets.
type fakeTokens struct {
	token  string
	err    error
	resets int
}

func (f *fakeTokens) Token() (*oauth2.Token, error) {
	return &oauth2.Token{AccessToken: f.token}, f.err
}

func (f *fakeTokens) ResetTokenOlderThan(time.Time) { f.resets++ }

// Without a token a kubelet is sent nothing, whatever other credentials there are. A token
// that it rejects is reset.
func TestTokens(t *testing.T) {
	ca := newAuthority(t)
	status := http.StatusUnauthorized
	kubelet := newFakeKubelet(t, ca.issue(nil, "192.0.2.1"), func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, nodeBody)
	})
	tokens := &fakeTokens{err: errors.New("the account is forbidden")}
	s, err := NewSource(Options{
		Store: samplestore.NewStore(clock.RealClock{}, time.Minute), Clock: clock.RealClock{}, DefaultCA: ca.pem, Dial: kubelet.dial,
		RestConfig: &rest.Config{BearerToken: "secret"}, Tokens: tokens,
	}, testSettings())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	node := testNode("n1", "192.0.2.1")
	checkFailure(t, s.scrapeOnce(t.Context(), node), v1alpha1.ScrapeNoToken, "the account is forbidden")
	if requests, connections := kubelet.seen(); len(requests) > 0 || connections > 0 {
		t.Errorf("%d requests over %d connections without a token", len(requests), connections)
	}
	tokens.err = nil
	checkFailure(t, s.scrapeOnce(t.Context(), node), v1alpha1.ScrapeUnauthorized, "")
	status = http.StatusForbidden
	checkFailure(t, s.scrapeOnce(t.Context(), node), v1alpha1.ScrapeForbidden, "nodes/metrics")
	if tokens.resets != 1 {
		t.Errorf("%d resets, want one for the 401", tokens.resets)
	}
}
