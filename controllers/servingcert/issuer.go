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
	"fmt"
	"math/big"
	"slices"
	"time"

	"k8s.io/utils/clock"
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
