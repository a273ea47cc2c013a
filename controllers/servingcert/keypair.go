// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// KeyPair is a certificate and its private key, as they are stored.
type KeyPair struct {
	// Certificate is PEM, the leaf first.
	Certificate []byte
	// Key is PEM.
	Key []byte
}

// parse returns the certificate and its key. It fails when either is missing,
// damaged, or when they do not belong together.
func (p KeyPair) parse() (*x509.Certificate, *ecdsa.PrivateKey, error) {
	if len(p.Certificate) == 0 || len(p.Key) == 0 {
		return nil, nil, errors.New("certificate or key is empty")
	}
	pair, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		return nil, nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, fmt.Errorf("the key is %T, want an ECDSA key", pair.PrivateKey)
	}
	return pair.Leaf, key, nil
}

func encodeKeyPair(der []byte, key *ecdsa.PrivateKey) (KeyPair, error) {
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("encode the private key: %w", err)
	}
	return KeyPair{
		Certificate: encodeCertificate(der),
		Key:         pem.EncodeToMemory(&pem.Block{Type: keyutil.ECPrivateKeyBlockType, Bytes: keyDER}),
	}, nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}

// parseBundle returns the certificates of a bundle. What is not a certificate is
// left out: a bundle is only ever added to.
func parseBundle(bundle []byte) []*x509.Certificate {
	var certificates []*x509.Certificate
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
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

func contains(certificates []*x509.Certificate, c *x509.Certificate) bool {
	for _, other := range certificates {
		if bytes.Equal(other.Raw, c.Raw) {
			return true
		}
	}
	return false
}
