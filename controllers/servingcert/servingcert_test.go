// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
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
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority.Authority().PEM()) {
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
	want := facts{true, start.Add(-backdate), start.Add(AuthorityLifetime), x509.ECDSA, true, true}
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

// What an operator issues whose clock is ahead is valid for kube-apiserver, whose clock is
// right, and is not replaced once the operator's is right again.
func TestClockAhead(t *testing.T) {
	issuer, clock := newIssuer()
	authority := mustAuthority(t, issuer)
	clock.Step(70 * 24 * time.Hour)
	late := mustAuthority(t, issuer)
	for name, authority := range map[string]KeyPair{"leaf": authority, "authority and leaf": late} {
		t.Run(name, func(t *testing.T) {
			clock.SetTime(start.AddDate(0, 0, 70))
			leaf := mustLeaf(t, issuer, authority)
			clock.SetTime(start)
			checkError(t, issuer.Verify(chain(t, leaf), authority.Authority(), names[0]), "")
			checkError(t, issuer.CheckAuthority(authority), "")
			checkError(t, issuer.CheckLeaf(leaf, authority, names), "")
		})
	}
}

// A leaf is renewed by its own lifetime, however old its authority is.
func TestRenewalWithOldAuthority(t *testing.T) {
	day := 24 * time.Hour
	for _, age := range []time.Duration{181 * day, 7 * 365 * day} {
		t.Run(age.String(), func(t *testing.T) {
			issuer, clock := newIssuer()
			authority := mustAuthority(t, issuer)
			clock.Step(age)
			leaf := mustLeaf(t, issuer, authority)
			clock.Step(LeafLifetime*2/3 - time.Minute)
			checkError(t, issuer.CheckLeaf(leaf, authority, names), "")
			clock.Step(2 * time.Minute)
			checkError(t, issuer.CheckLeaf(leaf, authority, names), "expires on")
		})
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
		"too early":    {authority: authority, at: start.Add(-backdate - time.Hour), want: "not valid before"},
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
	clock.SetTime(start.Add(AuthorityLifetime - 20*24*time.Hour))
	capped := mustLeaf(t, issuer, authority)
	cases := map[string]struct {
		leaf, authority KeyPair
		names           []string
		at              time.Time
		want            string
	}{
		"new":                      {leaf: leaf, authority: authority, names: names, at: start},
		"before the last third":    {leaf: leaf, authority: authority, names: names, at: start.Add(LeafLifetime*2/3 - time.Minute)},
		"in the last third":        {leaf: leaf, authority: authority, names: names, at: start.Add(LeafLifetime*2/3 + time.Minute), want: "expires on 2027-01-30"},
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

func TestParseBundle(t *testing.T) {
	issuer, clock := newIssuer()
	var authorities []KeyPair
	for range 4 {
		authorities = append(authorities, mustAuthority(t, issuer))
		clock.Step(time.Hour)
	}
	pems := func(pairs ...KeyPair) []byte {
		var out []byte
		for _, p := range pairs {
			out = append(out, p.Certificate...)
		}
		return out
	}
	newest := authorities[3]
	cases := map[string]struct {
		given [][]byte
		want  []byte
	}{
		"nothing":                  {},
		"nothing but rubbish":      {given: [][]byte{[]byte("rubbish"), nil}},
		"one":                      {given: [][]byte{pems(newest)}, want: pems(newest)},
		"newest first":             {given: [][]byte{pems(authorities[0], newest), pems(authorities[2])}, want: pems(newest, authorities[2], authorities[0])},
		"each once":                {given: [][]byte{pems(newest, newest), pems(newest)}, want: pems(newest)},
		"garbage before and after": {given: [][]byte{append(append([]byte("rubbish\n"), pems(newest)...), "more rubbish"...)}, want: pems(newest)},
		"a key is never passed on": {given: [][]byte{append(pems(newest), newest.Key...)}, want: pems(newest)},
		"a damaged block":          {given: [][]byte{append([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), pems(newest)...)}, want: pems(newest)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := ParseBundle(tc.given...)
			if diff := cmp.Diff(string(tc.want), string(got.PEM())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if again := ParseBundle(got.PEM()); !again.Equal(got) || again.Fingerprint() != got.Fingerprint() {
				t.Error("not stable")
			}
		})
	}
}

func TestBundleSets(t *testing.T) {
	issuer, _ := newIssuer()
	a, b := mustAuthority(t, issuer), mustAuthority(t, issuer)
	both := a.Authority().With(b.Authority())
	if len(both) != 2 || !both.Contains(a.Authority()) || !both.Contains(nil) || a.Authority().Contains(both) || a.Authority().Equal(b.Authority()) {
		t.Error("not a set")
	}
	if a.Authority().Fingerprint() == both.Fingerprint() {
		t.Error("two sets have one fingerprint")
	}
	signedByA, signedByB := chain(t, mustLeaf(t, issuer, a)), chain(t, mustLeaf(t, issuer, b))
	for name, tc := range map[string]struct {
		chains [][]*x509.Certificate
		want   Bundle
	}{
		"none":   {want: nil},
		"one":    {chains: [][]*x509.Certificate{signedByA}, want: a.Authority()},
		"both":   {chains: [][]*x509.Certificate{signedByA, signedByB}, want: both},
		"empty":  {chains: [][]*x509.Certificate{nil}},
		"itself": {chains: [][]*x509.Certificate{b.Authority()}, want: b.Authority()},
	} {
		t.Run(name, func(t *testing.T) {
			if got := issuer.InUse(both, tc.chains...); !got.Equal(tc.want) {
				t.Errorf("%d of 2 are in use", len(got))
			}
		})
	}
}

func chain(t *testing.T, p KeyPair) []*x509.Certificate {
	t.Helper()
	c, err := p.Chain()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAges(t *testing.T) {
	issuer, clock := newIssuer()
	authority := mustAuthority(t, issuer)
	leaf := chain(t, mustLeaf(t, issuer, authority))[0]
	day := 24 * time.Hour
	cases := map[string]struct {
		at               time.Duration
		leafEnds, caAges bool
	}{
		"new":                        {},
		"15 days are left":           {at: LeafLifetime - 15*day},
		"13 days are left":           {at: LeafLifetime - 13*day, leafEnds: true},
		"expired":                    {at: LeafLifetime + day, leafEnds: true},
		"the authority's last years": {at: AuthorityLifetime - 700*day, leafEnds: true, caAges: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			clock.SetTime(start.Add(tc.at))
			if got := issuer.EndsSoon(leaf); got != tc.leafEnds {
				t.Errorf("ends soon: %t, want %t", got, tc.leafEnds)
			}
			if got := issuer.CheckAuthorityAge(authority) != nil; got != tc.caAges {
				t.Errorf("ages: %t, want %t", got, tc.caAges)
			}
		})
	}
	if issuer.CheckAuthorityAge(KeyPair{}) == nil {
		t.Error("nothing is of no age")
	}
}

// What a user may put into a Secret, and that the message names the key to correct.
func TestCheckProvided(t *testing.T) {
	issuer, clock := newIssuer()
	authority, other := mustAuthority(t, issuer), mustAuthority(t, issuer)
	leaf := mustLeaf(t, issuer, authority)
	good := func(change func(map[string][]byte)) map[string][]byte {
		data := map[string][]byte{"tls.crt": leaf.Certificate, "tls.key": leaf.Key, "ca.crt": authority.Certificate}
		change(data)
		return data
	}
	without := func(key string) map[string][]byte { return good(func(d map[string][]byte) { delete(d, key) }) }
	with := func(key string, value []byte) map[string][]byte {
		return good(func(d map[string][]byte) { d[key] = value })
	}
	cases := map[string]struct {
		data   map[string][]byte
		name   string
		at     time.Duration
		want   string
		reason string
	}{
		"good":                      {data: good(func(map[string][]byte) {})},
		"two authorities":           {data: with("ca.crt", append(append([]byte{}, other.Certificate...), authority.Certificate...))},
		"nothing":                   {want: "lacks tls.crt, tls.key, ca.crt"},
		"no authority":              {data: without("ca.crt"), want: "lacks ca.crt"},
		"no key":                    {data: without("tls.key"), want: "lacks tls.key"},
		"authority is rubbish":      {data: with("ca.crt", []byte("rubbish")), want: "ca.crt holds no certificate"},
		"certificate is rubbish":    {data: with("tls.crt", []byte("rubbish")), want: "tls.crt holds no certificate"},
		"certificate is DER":        {data: with("tls.crt", certificate(t, leaf).Raw), want: "tls.crt holds no certificate"},
		"key is rubbish":            {data: with("tls.key", []byte("rubbish")), want: "cannot be used together", reason: v1alpha1.ReasonCertificateMismatch},
		"another key":               {data: with("tls.key", other.Key), want: "private key does not match", reason: v1alpha1.ReasonCertificateMismatch},
		"another authority":         {data: with("ca.crt", other.Certificate), want: "ca.crt does not verify tls.crt", reason: v1alpha1.ReasonCertificateMismatch},
		"another name":              {data: good(func(map[string][]byte) {}), name: "else.ns.svc", want: "tls.crt is not for else.ns.svc", reason: v1alpha1.ReasonCertificateMismatch},
		"expired":                   {data: good(func(map[string][]byte) {}), at: LeafLifetime + time.Hour, want: "tls.crt expired on 2027-01-30", reason: v1alpha1.ReasonCertificateExpired},
		"not valid yet":             {data: good(func(map[string][]byte) {}), at: -backdate - time.Hour, want: "not valid before", reason: v1alpha1.ReasonCertificateExpired},
		"the leaf as its authority": {data: with("ca.crt", leaf.Certificate)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			clock.SetTime(start.Add(tc.at))
			if tc.name == "" {
				tc.name = names[0]
			}
			got := issuer.CheckProvided(tc.data, tc.name)
			if got == nil {
				checkError(t, nil, tc.want)
				return
			}
			checkError(t, got, tc.want)
			if tc.reason == "" {
				tc.reason = v1alpha1.ReasonCertificateInvalid
			}
			if got.Reason != tc.reason {
				t.Errorf("reason %s, want %s", got.Reason, tc.reason)
			}
			if strings.Contains(got.Error(), "PRIVATE") || strings.Contains(got.Error(), string(leaf.Key)) {
				t.Error("the message holds a key")
			}
		})
	}
}

// An intermediate between the authority and the leaf comes with the leaf.
func TestIntermediate(t *testing.T) {
	issuer, _ := newIssuer()
	root, intermediate, leaf := withIntermediate(t)
	data := map[string][]byte{"tls.crt": append(append([]byte{}, leaf.Certificate...), intermediate...), "tls.key": leaf.Key, "ca.crt": root}
	if err := issuer.CheckProvided(data, names[0]); err != nil {
		t.Error(err)
	}
	if got := chain(t, Provided(data)); len(got) != 2 {
		t.Errorf("a chain of %d", len(got))
	}
	if got := issuer.InUse(ParseBundle(root), chain(t, Provided(data))); len(got) != 1 {
		t.Error("the root is not in use")
	}
	data["tls.crt"] = leaf.Certificate
	if err := issuer.CheckProvided(data, names[0]); err == nil || err.Reason != v1alpha1.ReasonCertificateMismatch {
		t.Errorf("without the intermediate: %v", err)
	}
}

func withIntermediate(t *testing.T) (root, intermediate []byte, leaf KeyPair) {
	t.Helper()
	sign := func(serial int64, isCA bool, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: fmt.Sprint("number ", serial)},
			NotBefore: start.Add(-time.Hour), NotAfter: start.Add(LeafLifetime), IsCA: isCA, BasicConstraintsValid: true, DNSNames: names,
		}
		if parent == nil {
			parent, parentKey = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
		if err != nil {
			t.Fatal(err)
		}
		made, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return made, key
	}
	top, topKey := sign(1, true, nil, nil)
	middle, middleKey := sign(2, true, top, topKey)
	end, endKey := sign(3, false, middle, middleKey)
	pair, err := encodeKeyPair(end.Raw, endKey)
	if err != nil {
		t.Fatal(err)
	}
	return encodeCertificate(top.Raw), encodeCertificate(middle.Raw), pair
}

func TestNothingComesOfNothing(t *testing.T) {
	issuer, _ := newIssuer()
	if _, err := issuer.Leaf(KeyPair{}, names); err == nil {
		t.Error("a leaf without an authority")
	}
	if len((KeyPair{}).Authority()) != 0 {
		t.Error("an authority of nothing")
	}
	if _, err := (KeyPair{}).Chain(); err == nil {
		t.Error("a chain of nothing")
	}
	if err := issuer.Verify(nil, mustAuthority(t, issuer).Authority(), ""); err == nil {
		t.Error("nothing is verified")
	}
}

// What is in a Secret or an APIService may be anything.
func FuzzChecks(f *testing.F) {
	issuer, _ := newIssuer()
	authority, err := issuer.Authority("metrics")
	if err != nil {
		f.Fatal(err)
	}
	leaf, err := issuer.Leaf(authority, names)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(authority.Certificate, authority.Key, authority.Certificate)
	f.Add(leaf.Certificate, leaf.Key, authority.Certificate)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"), []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, certificate, key, ca []byte) {
		pair := KeyPair{Certificate: certificate, Key: key}
		usable := issuer.CheckAuthority(pair) == nil
		_ = issuer.CheckLeaf(pair, authority, names)
		bundle := ParseBundle(certificate, key, ca, authority.Certificate)
		if !bundle.Contains(authority.Authority()) || !bundle.Equal(ParseBundle(bundle.PEM())) {
			t.Fatal("a bundle that is not what it was made from")
		}
		if strings.Contains(string(bundle.PEM()), "PRIVATE KEY") {
			t.Fatal("a key is in the bundle")
		}
		if usable {
			if _, err := issuer.Leaf(pair, names); err != nil {
				t.Fatalf("an authority that passed cannot sign: %v", err)
			}
		}
		data := map[string][]byte{"tls.crt": certificate, "tls.key": key, "ca.crt": ca}
		if issuer.CheckProvided(data, names[0]) == nil {
			served, err := Provided(data).Chain()
			if err != nil || len(issuer.InUse(ParseBundle(ca), served)) == 0 && issuer.Verify(served, ParseBundle(ca), names[0]) != nil {
				t.Fatalf("a certificate that passed cannot be served: %v", err)
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
