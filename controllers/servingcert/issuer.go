// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"time"

	"k8s.io/utils/clock"
)

// Issuer makes authorities and leaves. Its zero value cannot be used.
type Issuer struct {
	clock  clock.PassiveClock
	random io.Reader
}

// NewIssuer returns an Issuer that takes the time from clock and keys from the
// system's randomness.
func NewIssuer(clock clock.PassiveClock) *Issuer {
	return &Issuer{clock: clock, random: rand.Reader}
}

// Authority makes a new authority with a key of its own.
func (i *Issuer) Authority(name string) (KeyPair, error) {
	key, serial, err := i.material()
	if err != nil {
		return KeyPair{}, fmt.Errorf("make an authority: %w", err)
	}
	now := i.clock.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		// The serial keeps authorities of the same backend apart in bundles.
		Subject:               pkix.Name{CommonName: fmt.Sprintf("%s-ca@%x", name, serial.Bytes()[:4])},
		NotBefore:             now.Add(-backdate).UTC(),
		NotAfter:              now.Add(AuthorityLifetime).UTC(),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(i.random, template, template, key.Public(), key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("sign an authority: %w", err)
	}
	return encodeKeyPair(der, key)
}

// Leaf makes a serving certificate for names, signed by authority. It never
// outlives the authority.
func (i *Issuer) Leaf(authority KeyPair, names []string) (KeyPair, error) {
	ca, caKey, err := authority.parse()
	if err != nil {
		return KeyPair{}, fmt.Errorf("use the authority: %w", err)
	}
	key, serial, err := i.material()
	if err != nil {
		return KeyPair{}, fmt.Errorf("make a serving certificate: %w", err)
	}
	now := i.clock.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: names[0]},
		DNSNames:     names,
		NotBefore:    later(now.Add(-backdate), ca.NotBefore).UTC(),
		NotAfter:     earlier(now.Add(LeafLifetime), ca.NotAfter).UTC(),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(i.random, template, ca, key.Public(), caKey)
	if err != nil {
		return KeyPair{}, fmt.Errorf("sign a serving certificate: %w", err)
	}
	return encodeKeyPair(der, key)
}

// material returns a new P-256 key and a 127-bit serial number.
func (i *Issuer) material() (*ecdsa.PrivateKey, *big.Int, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), i.random)
	if err != nil {
		return nil, nil, fmt.Errorf("generate a key: %w", err)
	}
	limit := new(big.Int).Lsh(big.NewInt(1), 126)
	serial, err := rand.Int(i.random, limit)
	if err != nil {
		return nil, nil, fmt.Errorf("generate a serial number: %w", err)
	}
	// Never short, and always positive (RFC 5280 section 4.1.2.2).
	return key, serial.Add(serial, limit), nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
