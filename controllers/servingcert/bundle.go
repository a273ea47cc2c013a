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

// Bundle is what clients verify serving certificates with: each authority once,
// the newest first, so that equal sets are equal bytes and nothing is written for
// an order that changed.
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

// ParseBundle returns the certificates among the PEM blocks. What is not a
// certificate is left out: a private key is never passed on.
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

// With returns the certificates of all of them.
func (b Bundle) With(others ...Bundle) Bundle {
	return NewBundle(slices.Concat(append([]Bundle{b}, others...)...)...)
}

// Contains tells whether every certificate of the other is in b.
func (b Bundle) Contains(other Bundle) bool {
	return !slices.ContainsFunc(other, func(c *x509.Certificate) bool { return !slices.ContainsFunc(b, c.Equal) })
}

// Equal tells whether both hold the same certificates.
func (b Bundle) Equal(other Bundle) bool {
	return slices.EqualFunc(b, other, (*x509.Certificate).Equal)
}

// PEM is the Bundle as it is stored; nil when it is empty.
func (b Bundle) PEM() []byte {
	var out []byte
	for _, c := range b {
		out = append(out, encodeCertificate(c.Raw)...)
	}
	return out
}

// Fingerprint tells one Bundle from another.
func (b Bundle) Fingerprint() string {
	hash := sha256.New()
	for _, c := range b {
		_, _ = hash.Write(c.Raw)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// pool is the Bundle for crypto/x509.
func (b Bundle) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range b {
		pool.AddCert(c)
	}
	return pool
}
