// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Bundle is the set of authorities that verify serving certificates, newest first and without
// duplicates, so that equal sets have equal bytes.
type Bundle []*x509.Certificate

// NewBundle returns the certificates as a Bundle.
func NewBundle(certificates ...*x509.Certificate) Bundle {
	bundle := slices.Clone(certificates)
	slices.SortFunc(bundle, func(a, b *x509.Certificate) int {
		return cmp.Or(b.NotBefore.Compare(a.NotBefore), bytes.Compare(a.Raw, b.Raw))
	})
	return slices.CompactFunc(bundle, (*x509.Certificate).Equal)
}

// ParseBundle returns the certificates among the PEM blocks. It leaves out all others, such as
// private keys.
func ParseBundle(pems ...[]byte) Bundle {
	var certificates []*x509.Certificate
	for _, rest := range pems {
		certificates = append(certificates, parseCertificates(rest)...)
	}
	return NewBundle(certificates...)
}

func parseCertificates(rest []byte) []*x509.Certificate {
	var certificates []*x509.Certificate
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return certificates
		}
		if block.Type != cert.CertificateBlockType {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			certificates = append(certificates, c)
		}
	}
}

// With returns the union of b and others.
func (b Bundle) With(others ...Bundle) Bundle {
	return NewBundle(slices.Concat(append([]Bundle{b}, others...)...)...)
}

// Contains reports whether b has all certificates of other.
func (b Bundle) Contains(other Bundle) bool {
	return !slices.ContainsFunc(other, func(c *x509.Certificate) bool { return !slices.ContainsFunc(b, c.Equal) })
}

// Equal reports whether both have the same certificates.
func (b Bundle) Equal(other Bundle) bool {
	return slices.EqualFunc(b, other, (*x509.Certificate).Equal)
}

// PEM returns the Bundle in PEM, or nil if it is empty.
func (b Bundle) PEM() []byte {
	var out []byte
	for _, c := range b {
		out = append(out, encodeCertificate(c.Raw)...)
	}
	return out
}

// Fingerprint returns a hash of the Bundle.
func (b Bundle) Fingerprint() string {
	hash := sha256.New()
	for _, c := range b {
		_, _ = hash.Write(c.Raw)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

func (b Bundle) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range b {
		pool.AddCert(c)
	}
	return pool
}

// KeyPair is a certificate and its private key.
type KeyPair struct {
	// Certificate is PEM, the leaf first, then the intermediates, if any.
	Certificate []byte
	// Key is PEM.
	Key []byte
}

// Chain returns the certificates, leaf first. It fails if certificate or key are missing or
// damaged, or do not belong together.
func (p KeyPair) Chain() ([]*x509.Certificate, error) {
	leaf, _, err := p.parse()
	if err != nil {
		return nil, err
	}
	chain := []*x509.Certificate{leaf}
	for _, c := range parseCertificates(p.Certificate) {
		if !c.Equal(leaf) {
			chain = append(chain, c)
		}
	}
	return chain, nil
}

// Authority returns the certificate as a Bundle, which is empty if it cannot be used.
func (p KeyPair) Authority() Bundle {
	c, _, err := p.parse()
	if err != nil {
		return nil
	}
	return NewBundle(c)
}

// Equal reports whether both have the same bytes.
func (p KeyPair) Equal(other KeyPair) bool {
	return bytes.Equal(p.Certificate, other.Certificate) && bytes.Equal(p.Key, other.Key)
}

// parse returns the certificate and its key, with the errors of Chain.
func (p KeyPair) parse() (*x509.Certificate, crypto.Signer, error) {
	if len(p.Certificate) == 0 || len(p.Key) == 0 {
		return nil, nil, errors.New("certificate or key is empty")
	}
	pair, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		return nil, nil, err
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, nil, fmt.Errorf("the key is %T, which cannot sign", pair.PrivateKey)
	}
	return pair.Leaf, key, nil
}

func encodeKeyPair(der []byte, key *ecdsa.PrivateKey) (KeyPair, error) {
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("encode the private key: %w", err)
	}
	return KeyPair{Certificate: encodeCertificate(der), Key: keyPEM}, nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}
