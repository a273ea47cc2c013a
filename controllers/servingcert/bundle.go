// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"slices"

	"k8s.io/client-go/util/cert"
)

// Bundle is the set of authorities that verify serving certificates, newest first and without
// duplicates, so that equal sets have equal bytes.
type Bundle []*x509.Certificate

// NewBundle returns the certificates as a Bundle.
func NewBundle(certificates ...*x509.Certificate) Bundle {
	bundle := slices.Clone(certificates)
	slices.SortFunc(bundle, func(a, b *x509.Certificate) int {
		if byTime := b.NotBefore.Compare(a.NotBefore); byTime != 0 {
			return byTime
		}
		return bytes.Compare(a.Raw, b.Raw)
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
