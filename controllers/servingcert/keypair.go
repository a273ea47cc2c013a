// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

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
