// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// TestNoCA checks that without a CA scrapes fail, but not the source, and that the
// operating system's CAs are not used.
func TestNoCA(t *testing.T) {
	ca := newAuthority(t)
	kubelet := newFakeKubelet(t, ca.issue(nil, "192.0.2.1"), serve(nodeBody))
	cfg := testSettings()
	cfg.TLS = v1alpha1.KubeletTLSVerifyOrPin
	s := newTestSource(t, clock.RealClock{}, nil, kubelet.dial, cfg)
	node := testNode("n1", "192.0.2.1")
	checkFailure(t, s.scrapeOnce(t.Context(), node), v1alpha1.ScrapeCertificateUntrusted, "caBundle")
	if s.settings.kubeletTLS.roots == nil {
		t.Error("no pool: crypto/tls would take the operating system's authorities")
	}
	cfg.Interval = time.Minute
	mustApply(t, s, cfg)
	checkFailure(t, s.scrapeOnce(t.Context(), node), v1alpha1.ScrapeCertificateUntrusted, "PinOnFirstUse")
	if _, connections := kubelet.seen(); connections != 0 {
		t.Errorf("%d connections without an authority to verify them with", connections)
	}
	cfg.CABundle = ca.pem
	mustApply(t, s, cfg)
	checkFailure(t, s.scrapeOnce(t.Context(), node), "", "")
}

// TestSetDefaultCA rotates the cluster's CA.
func TestSetDefaultCA(t *testing.T) {
	first, second := newAuthority(t), newAuthority(t)
	kubelet := newFakeKubelet(t, first.issue(nil, "192.0.2.1"), serve(nodeBody))
	s := newTestSource(t, clock.RealClock{}, nil, kubelet.dial, testSettings())
	both := append(append([]byte{}, first.pem...), second.pem...)
	for _, step := range []struct {
		what        string
		ca          []byte
		bad         bool
		show        *authority
		want        v1alpha1.ScrapeReason
		connections int
	}{
		{what: "none yet", want: v1alpha1.ScrapeCertificateUntrusted},
		{what: "it comes", ca: first.pem, connections: 1},
		{what: "the same", ca: append([]byte{}, first.pem...), connections: 1},
		{what: "both", ca: both, connections: 2},
		{what: "not PEM", ca: []byte("x"), bad: true, connections: 2},
		{what: "the new one, which the kubelet's is not of", ca: second.pem, want: v1alpha1.ScrapeCertificateUntrusted, connections: 3},
		{what: "a new certificate", ca: second.pem, show: second, connections: 4},
		{what: "it goes", want: v1alpha1.ScrapeCertificateUntrusted, connections: 4},
	} {
		if err := s.SetDefaultCA(step.ca); (err != nil) != step.bad {
			t.Errorf("%s: SetDefaultCA() = %v", step.what, err)
		}
		if step.show != nil {
			kubelet.show(step.show.issue(nil, "192.0.2.1"))
		}
		checkFailure(t, s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1")), step.want, "")
		if _, connections := kubelet.seen(); connections != step.connections {
			t.Errorf("%s: %d connections so far, want %d", step.what, connections, step.connections)
		}
	}
}

// TestSetDefaultCANotInUse changes the default CA while it is not used: connections
// are kept, and the new one is used once the settings say so.
func TestSetDefaultCANotInUse(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	tests := map[string]func(*Settings){
		"a CA of the settings": func(cfg *Settings) { cfg.CABundle = ca.pem },
		"PinOnFirstUse":        func(cfg *Settings) { cfg.TLS = v1alpha1.KubeletTLSPinOnFirstUse },
		"Skip":                 func(cfg *Settings) { cfg.TLS = v1alpha1.KubeletTLSInsecureSkipTLSVerify },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			kubelet := newFakeKubelet(t, ca.issue(nil, "192.0.2.1"), serve(nodeBody))
			cfg := testSettings()
			change(&cfg)
			s := newTestSource(t, clock.RealClock{}, other.pem, kubelet.dial, cfg)
			node := testNode("n1", "192.0.2.1")
			checkFailure(t, s.scrapeOnce(t.Context(), node), "", "")
			if err := s.SetDefaultCA(ca.pem); err != nil {
				t.Fatal(err)
			}
			checkFailure(t, s.scrapeOnce(t.Context(), node), "", "")
			if _, connections := kubelet.seen(); connections != 1 {
				t.Errorf("%d connections, want the one that was there", connections)
			}
			mustApply(t, s, testSettings())
			checkFailure(t, s.scrapeOnce(t.Context(), node), "", "")
		})
	}
}
