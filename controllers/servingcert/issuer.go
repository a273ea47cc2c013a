// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servingcert issues and checks the certificates of the serving pods: the operator's
// own authority and the leaf that it signs, or a provided leaf, and the bundle that clients
// verify with. It knows no Kubernetes objects; bytes are PEM.
package servingcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	// AuthorityLifetime is how long a new authority is valid.
	AuthorityLifetime = 10 * 365 * 24 * time.Hour
	// LeafLifetime is how long a new leaf is valid, unless its authority ends first.
	LeafLifetime = 90 * 24 * time.Hour

	// authorityRenewWhenLeft: an authority is replaced when a fifth of its lifetime is
	// left, two years.
	authorityRenewWhenLeft = 5
	// leafRenewWhenLeft: a leaf is replaced when a third of its lifetime is left, so that
	// renewal may fail for a month.
	leafRenewWhenLeft = 3
	// backdate is how far the operator's clock may be ahead when it makes an authority. A year,
	// since kube-apiserver's own certificate is usually valid for one: an operator whose clock
	// is further ahead takes that for expired, and cannot connect.
	backdate = 365 * 24 * time.Hour
)

// Issuer issues authorities and leaves.
type Issuer struct {
	clock clock.PassiveClock
}

// NewIssuer returns an Issuer.
func NewIssuer(clock clock.PassiveClock) *Issuer {
	return &Issuer{clock: clock}
}

// Authority returns a new authority with a new key.
func (i *Issuer) Authority(name string) (KeyPair, error) {
	key, serial, err := newKey()
	if err != nil {
		return KeyPair{}, fmt.Errorf("make an authority: %w", err)
	}
	now := i.clock.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		// The serial number distinguishes authorities of one backend in bundles.
		Subject:               pkix.Name{CommonName: fmt.Sprintf("%s-ca@%x", name, serial.Bytes()[:4])},
		NotBefore:             now.Add(-backdate).UTC(),
		NotAfter:              now.Add(AuthorityLifetime).UTC(),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("sign an authority: %w", err)
	}
	return encodeKeyPair(der, key)
}

// Leaf returns a serving certificate for names, signed by authority. It is valid from the
// authority's NotBefore, since the operator's clock may be ahead, and expires no later than
// the authority.
func (i *Issuer) Leaf(authority KeyPair, names []string) (KeyPair, error) {
	ca, caKey, err := authority.parse()
	if err != nil {
		return KeyPair{}, fmt.Errorf("use the authority: %w", err)
	}
	key, serial, err := newKey()
	if err != nil {
		return KeyPair{}, fmt.Errorf("make a serving certificate: %w", err)
	}
	now := i.clock.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: names[0]},
		DNSNames:     names,
		NotBefore:    ca.NotBefore,
		NotAfter:     slices.MinFunc([]time.Time{now.Add(LeafLifetime), ca.NotAfter}, time.Time.Compare).UTC(),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
	if err != nil {
		return KeyPair{}, fmt.Errorf("sign a serving certificate: %w", err)
	}
	return encodeKeyPair(der, key)
}

// newKey returns a new P-256 key and a 127-bit serial number.
func newKey() (*ecdsa.PrivateKey, *big.Int, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate a key: %w", err)
	}
	limit := new(big.Int).Lsh(big.NewInt(1), 126)
	serial, err := rand.Int(rand.Reader, limit)
	if err != nil {
		return nil, nil, fmt.Errorf("generate a serial number: %w", err)
	}
	// Always positive (RFC 5280 section 4.1.2.2), and never short.
	return key, serial.Add(serial, limit), nil
}

// CheckAuthority returns an error if authority can no longer sign serving certificates.
func (i *Issuer) CheckAuthority(authority KeyPair) error {
	ca, _, err := authority.parse()
	if err != nil {
		return err
	}
	if !ca.IsCA {
		return errors.New("the certificate is not an authority's")
	}
	return i.checkTime(ca)
}

// CheckAuthorityAge returns an error if the authority is due for replacement.
func (i *Issuer) CheckAuthorityAge(authority KeyPair) error {
	ca, _, err := authority.parse()
	if err != nil {
		return err
	}
	lifetime := min(ca.NotAfter.Sub(ca.NotBefore), AuthorityLifetime) // NotBefore is backdated
	if i.clock.Now().After(ca.NotAfter.Add(-lifetime / authorityRenewWhenLeft)) {
		return fmt.Errorf("the authority expires on %s", day(ca.NotAfter))
	}
	return nil
}

// CheckLeaf returns an error if leaf must be replaced: it is damaged, not signed by
// authority, not for exactly these names, or in the last third of its lifetime while a new
// one would be valid for longer.
func (i *Issuer) CheckLeaf(leaf, authority KeyPair, names []string) error {
	chain, err := leaf.Chain()
	if err != nil {
		return err
	}
	ca, _, err := authority.parse()
	if err != nil {
		return fmt.Errorf("the authority cannot be used: %w", err)
	}
	if err := i.Verify(chain, NewBundle(ca), names[0]); err != nil {
		return err
	}
	c := chain[0]
	if !slices.Equal(c.DNSNames, names) {
		return fmt.Errorf("is for %q, want %q", c.DNSNames, names)
	}
	lifetime := min(c.NotAfter.Sub(c.NotBefore), LeafLifetime) // NotBefore is the authority's
	if i.clock.Now().After(c.NotAfter.Add(-lifetime/leafRenewWhenLeft)) && c.NotAfter.Before(ca.NotAfter) {
		return fmt.Errorf("expires on %s", day(c.NotAfter))
	}
	return nil
}

// Verify returns an error if a client that trusts bundle would reject a server with this
// chain, leaf first, for name, or for any name if it is empty. The error is the same each
// time for the same failure.
func (i *Issuer) Verify(chain []*x509.Certificate, bundle Bundle, name string) error {
	if len(chain) == 0 {
		return errors.New("there is no certificate")
	}
	if err := i.checkTime(chain[0]); err != nil {
		return err
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: bundle.pool(), Intermediates: NewBundle(chain[1:]...).pool(),
		CurrentTime: i.clock.Now(), DNSName: name,
	})
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		// The error holds the current time.
		return fmt.Errorf("its authority %q is not valid today", invalid.Cert.Subject)
	}
	return err
}

// InUse returns the certificates of the bundle that verify at least one of the chains.
func (i *Issuer) InUse(bundle Bundle, chains ...[]*x509.Certificate) Bundle {
	return slices.DeleteFunc(slices.Clone(bundle), func(c *x509.Certificate) bool {
		return !slices.ContainsFunc(chains, func(chain []*x509.Certificate) bool {
			return i.Verify(chain, Bundle{c}, "") == nil
		})
	})
}

// EndsSoon reports whether the certificate's renewal is overdue: less than a fifth of its
// lifetime is left, and less than 14 days.
func (i *Issuer) EndsSoon(c *x509.Certificate) bool {
	return c.NotAfter.Sub(i.clock.Now()) < min(c.NotAfter.Sub(c.NotBefore)/5, 14*24*time.Hour)
}

func (i *Issuer) checkTime(c *x509.Certificate) error {
	switch now := i.clock.Now(); {
	case now.After(c.NotAfter):
		return fmt.Errorf("expired on %s", day(c.NotAfter))
	case now.Before(c.NotBefore):
		return fmt.Errorf("not valid before %s", day(c.NotBefore))
	}
	return nil
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// UnusableError means that a certificate cannot be served. Its message says what to do, contains
// no key, and is the same each time for the same failure.
type UnusableError struct {
	// Reason is that of condition CertificatesValid.
	Reason, Message string
	// Transient: it may end without user action.
	Transient bool
}

// Error implements error.
func (e *UnusableError) Error() string { return e.Message }

func unusable(reason, format string, args ...any) *UnusableError {
	return &UnusableError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// CheckProvided returns an error if the certificate in a Secret's data cannot be served for
// name.
func (i *Issuer) CheckProvided(data map[string][]byte, name string) *UnusableError {
	var missing []string
	for _, key := range []string{v1alpha1.SecretKeyCertificate, v1alpha1.SecretKeyPrivateKey, v1alpha1.SecretKeyCA} {
		if len(data[key]) == 0 {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		return unusable(v1alpha1.ReasonCertificateInvalid, "it lacks %s: put it there", strings.Join(missing, ", "))
	}
	authorities := ParseBundle(data[v1alpha1.SecretKeyCA])
	if len(authorities) == 0 {
		return unusable(v1alpha1.ReasonCertificateInvalid, "ca.crt holds no certificate in PEM: put the authority there that signed tls.crt")
	}
	served := ParseBundle(data[v1alpha1.SecretKeyCertificate])
	if len(served) == 0 {
		return unusable(v1alpha1.ReasonCertificateInvalid, "tls.crt holds no certificate in PEM")
	}
	chain, err := Provided(data).Chain()
	if err != nil {
		return unusable(v1alpha1.ReasonCertificateMismatch, "tls.crt and tls.key cannot be used together: %v", err)
	}
	if err := i.checkTime(chain[0]); err != nil {
		return unusable(v1alpha1.ReasonCertificateExpired, "tls.crt %v: renew it", err)
	}
	if err := chain[0].VerifyHostname(name); err != nil {
		return unusable(v1alpha1.ReasonCertificateMismatch, "tls.crt is not for %s, by which kube-apiserver verifies it: issue it with this DNS name", name)
	}
	if err := i.Verify(chain, authorities, name); err != nil {
		return unusable(v1alpha1.ReasonCertificateMismatch,
			"ca.crt does not verify tls.crt (%v): put the authority that signed it into ca.crt, and intermediates into tls.crt", err)
	}
	return nil
}

// Provided returns the KeyPair in a Secret's data.
func Provided(data map[string][]byte) KeyPair {
	return KeyPair{Certificate: data[v1alpha1.SecretKeyCertificate], Key: data[v1alpha1.SecretKeyPrivateKey]}
}
