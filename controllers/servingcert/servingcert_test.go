// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"
)

var (
	start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	names = []string{"metrics.ns.svc", "metrics.ns", "metrics"}
)

func newIssuer() (*Issuer, *testingclock.FakeClock) {
	clock := testingclock.NewFakeClock(start)
	return NewIssuer(clock), clock
}

func mustAuthority(t *testing.T, i *Issuer) KeyPair {
	t.Helper()
	authority, err := i.Authority("metrics")
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func mustLeaf(t *testing.T, i *Issuer, authority KeyPair) KeyPair {
	t.Helper()
	leaf, err := i.Leaf(authority, names)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func certificate(t *testing.T, p KeyPair) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode(p.Certificate)
	if block == nil || len(rest) > 0 {
		t.Fatalf("not exactly one PEM block: %q", p.Certificate)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A client that trusts the bundle accepts the leaf for the Service's name, in a
// real handshake, and for no other name.
func TestHandshake(t *testing.T) {
	// The handshake takes the system's time.
	issuer := NewIssuer(testingclock.NewFakeClock(time.Now()))
	authority := mustAuthority(t, issuer)
	leaf := mustLeaf(t, issuer, authority)
	bundle, err := issuer.Bundle(authority)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatal("the bundle holds no certificate")
	}
	pair, err := tls.X509KeyPair(leaf.Certificate, leaf.Key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() }()
		}
	}()
	for name, wanted := range map[string]bool{"metrics.ns.svc": true, "metrics": true, "other.ns.svc": false} {
		client, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{RootCAs: roots, ServerName: name})
		if (err == nil) != wanted {
			t.Errorf("handshake for %s: %v, want success %t", name, err, wanted)
		}
		if err == nil {
			_ = client.Close()
		}
	}
}

func TestAuthority(t *testing.T) {
	issuer, _ := newIssuer()
	c := certificate(t, mustAuthority(t, issuer))
	type facts struct {
		CA                bool
		From, Until       time.Time
		Algorithm         x509.PublicKeyAlgorithm
		CanSign, AnyUsage bool
	}
	got := facts{c.IsCA, c.NotBefore, c.NotAfter, c.PublicKeyAlgorithm, c.KeyUsage&x509.KeyUsageCertSign != 0, len(c.ExtKeyUsage) == 0}
	want := facts{true, start.Add(-time.Hour), start.Add(AuthorityLifetime), x509.ECDSA, true, true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	other := certificate(t, mustAuthority(t, issuer))
	if c.Subject.CommonName == other.Subject.CommonName || c.SerialNumber.Cmp(other.SerialNumber) == 0 {
		t.Errorf("two authorities cannot be told apart: %v and %v", c.Subject, other.Subject)
	}
}

func TestLeaf(t *testing.T) {
	issuer, clock := newIssuer()
	authority := mustAuthority(t, issuer)
	c := certificate(t, mustLeaf(t, issuer, authority))
	if diff := cmp.Diff(names, c.DNSNames); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if c.IsCA || len(c.ExtKeyUsage) != 1 || c.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth {
		t.Errorf("usable for more than serving: CA %t, usages %v", c.IsCA, c.ExtKeyUsage)
	}
	if want := start.Add(LeafLifetime); !c.NotAfter.Equal(want) {
		t.Errorf("expires %s, want %s", c.NotAfter, want)
	}

	clock.SetTime(start.Add(AuthorityLifetime - 24*time.Hour))
	late := certificate(t, mustLeaf(t, issuer, authority))
	if want := start.Add(AuthorityLifetime); !late.NotAfter.Equal(want) {
		t.Errorf("a leaf outlives its authority: expires %s, want %s", late.NotAfter, want)
	}
}

func TestCheckAuthority(t *testing.T) {
	issuer, clock := newIssuer()
	authority := mustAuthority(t, issuer)
	cases := map[string]struct {
		authority KeyPair
		at        time.Time
		want      string
	}{
		"new":          {authority: authority, at: start},
		"last day":     {authority: authority, at: start.Add(AuthorityLifetime - time.Hour)},
		"expired":      {authority: authority, at: start.Add(AuthorityLifetime + time.Hour), want: "expired on 2036-10-29"},
		"too early":    {authority: authority, at: start.Add(-2 * time.Hour), want: "not valid before"},
		"missing":      {at: start, want: "empty"},
		"no key":       {authority: KeyPair{Certificate: authority.Certificate}, at: start, want: "empty"},
		"damaged":      {authority: KeyPair{Certificate: []byte("x"), Key: []byte("y")}, at: start, want: "failed to find any PEM data"},
		"another key":  {authority: KeyPair{Certificate: authority.Certificate, Key: mustAuthority(t, issuer).Key}, at: start, want: "does not match"},
		"not a CA":     {authority: mustLeaf(t, issuer, authority), at: start, want: "not an authority's"},
		"cut in half":  {authority: KeyPair{Certificate: authority.Certificate[:100], Key: authority.Key}, at: start, want: "failed to find"},
		"key as cert":  {authority: KeyPair{Certificate: authority.Key, Key: authority.Key}, at: start, want: "failed to find"},
		"empty blocks": {authority: KeyPair{Certificate: []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), Key: authority.Key}, at: start, want: "x509"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			clock.SetTime(tc.at)
			checkError(t, issuer.CheckAuthority(tc.authority), tc.want)
		})
	}
}

func TestCheckLeaf(t *testing.T) {
	issuer, clock := newIssuer()
	authority, other := mustAuthority(t, issuer), mustAuthority(t, issuer)
	leaf := mustLeaf(t, issuer, authority)
	lifetime := LeafLifetime + backdate
	clock.SetTime(start.Add(AuthorityLifetime - 20*24*time.Hour))
	capped := mustLeaf(t, issuer, authority)
	cases := map[string]struct {
		leaf, authority KeyPair
		names           []string
		at              time.Time
		want            string
	}{
		"new":                      {leaf: leaf, authority: authority, names: names, at: start},
		"before the last third":    {leaf: leaf, authority: authority, names: names, at: start.Add(LeafLifetime - lifetime/3 - time.Minute)},
		"in the last third":        {leaf: leaf, authority: authority, names: names, at: start.Add(LeafLifetime - lifetime/3 + time.Minute), want: "expires on 2027-01-30"},
		"expired":                  {leaf: leaf, authority: authority, names: names, at: start.Add(LeafLifetime + time.Minute), want: "expired"},
		"another authority":        {leaf: leaf, authority: other, names: names, at: start, want: "unknown authority"},
		"another name":             {leaf: leaf, authority: authority, names: []string{"new.ns.svc"}, at: start, want: "valid for metrics.ns.svc"},
		"one name more":            {leaf: leaf, authority: authority, names: append([]string{"metrics.ns.svc"}, "more"), at: start, want: `is for ["metrics.ns.svc" "metrics.ns" "metrics"]`},
		"missing":                  {authority: authority, names: names, at: start, want: "empty"},
		"authority missing":        {leaf: leaf, names: names, at: start, want: "the authority cannot be used"},
		"as long as its authority": {leaf: capped, authority: authority, names: names, at: start.Add(AuthorityLifetime - time.Hour)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			clock.SetTime(tc.at)
			checkError(t, issuer.CheckLeaf(tc.leaf, tc.authority, tc.names), tc.want)
		})
	}
}

func TestBundle(t *testing.T) {
	issuer, clock := newIssuer()
	var authorities []KeyPair
	for range 6 {
		authorities = append(authorities, mustAuthority(t, issuer))
		clock.Step(time.Hour)
	}
	leaf := mustLeaf(t, issuer, authorities[0])
	newest := authorities[5]
	bundle := func(pairs ...KeyPair) []byte {
		var out []byte
		for _, p := range pairs {
			out = append(out, p.Certificate...)
		}
		return out
	}
	cases := map[string]struct {
		former [][]byte
		at     time.Time
		want   []byte
	}{
		"alone":                    {want: bundle(newest)},
		"with itself":              {former: [][]byte{bundle(newest)}, want: bundle(newest)},
		"newest first":             {former: [][]byte{bundle(authorities[1], authorities[3]), bundle(authorities[2])}, want: bundle(newest, authorities[3], authorities[2], authorities[1])},
		"twice the same":           {former: [][]byte{bundle(authorities[3]), bundle(authorities[3])}, want: bundle(newest, authorities[3])},
		"bounded":                  {former: [][]byte{bundle(authorities[:5]...)}, want: bundle(newest, authorities[4], authorities[3], authorities[2])},
		"without expired":          {former: [][]byte{bundle(authorities[0], authorities[4])}, at: start.Add(AuthorityLifetime + time.Hour), want: bundle(newest, authorities[4])},
		"without leaves":           {former: [][]byte{bundle(leaf)}, want: bundle(newest)},
		"garbage before and after": {former: [][]byte{append(append([]byte("rubbish\n"), bundle(authorities[4])...), "more rubbish"...)}, want: bundle(newest, authorities[4])},
		"a key is never passed on": {former: [][]byte{append(bundle(authorities[4]), authorities[4].Key...)}, want: bundle(newest, authorities[4])},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			clock.SetTime(start.Add(24 * time.Hour))
			if !tc.at.IsZero() {
				clock.SetTime(tc.at)
			}
			got, err := issuer.Bundle(newest, tc.former...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(tc.want), string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			again, err := issuer.Bundle(newest, got)
			if err != nil || string(again) != string(got) {
				t.Errorf("not stable: %v, %s", err, cmp.Diff(string(got), string(again)))
			}
		})
	}
}

func TestBrokenRandomness(t *testing.T) {
	issuer, _ := newIssuer()
	authority := mustAuthority(t, issuer)
	if _, err := issuer.Leaf(KeyPair{}, names); err == nil {
		t.Error("a leaf without an authority")
	}
	if _, err := issuer.Bundle(KeyPair{}); err == nil {
		t.Error("a bundle without an authority")
	}
	if _, err := authority.NotAfter(); err != nil {
		t.Error(err)
	}
	if _, err := (KeyPair{}).NotAfter(); err == nil {
		t.Error("nothing expires some day")
	}
}

// What is in a Secret may be anything.
func FuzzChecks(f *testing.F) {
	issuer, _ := newIssuer()
	authority, err := issuer.Authority("metrics")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(authority.Certificate, authority.Key)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"), []byte{})
	f.Fuzz(func(t *testing.T, certificate, key []byte) {
		pair := KeyPair{Certificate: certificate, Key: key}
		usable := issuer.CheckAuthority(pair) == nil
		_ = issuer.CheckLeaf(pair, authority, names)
		bundle, err := issuer.Bundle(authority, certificate, key)
		if err != nil {
			t.Fatalf("a good authority with a bad former bundle: %v", err)
		}
		if strings.Contains(string(bundle), "PRIVATE KEY") {
			t.Fatal("a key is in the bundle")
		}
		if usable {
			if _, err := issuer.Leaf(pair, names); err != nil {
				t.Fatalf("an authority that passed cannot sign: %v", err)
			}
		}
	})
}

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("got %q, want none", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("got %v, want %q in it", err, want)
	}
}
