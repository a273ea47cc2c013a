// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authority creates certificate authorities for tests, and certificates signed by them.
package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Certificates are valid for the whole century, since TLS verifies them with the real clock, not with the clock of a test.
var (
	notBefore = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	notAfter  = time.Date(2099, 12, 31, 0, 0, 0, 0, time.UTC)
)

// Authority signs certificates.
type Authority struct {
	// Certificate is the CA certificate, PEM its encoding.
	Certificate *x509.Certificate
	PEM         []byte
	Key         crypto.Signer
}

// Leaf is a certificate with its key.
type Leaf struct {
	TLS tls.Certificate
	// Certificate and Key are PEM.
	Certificate, Key []byte
}

// Change modifies a certificate before it is signed.
type Change func(*x509.Certificate)

// New returns an authority with this common name and a new key.
func New(name string, changes ...Change) (*Authority, error) {
	asCA := func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.ExtKeyUsage = true, true, nil
		c.KeyUsage |= x509.KeyUsageCertSign
	}
	made, err := sign(nil, name, nil, append([]Change{asCA}, changes...))
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(made.TLS.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("read the certificate of %s: %w", name, err)
	}
	return &Authority{Certificate: certificate, PEM: made.Certificate, Key: made.TLS.PrivateKey.(*ecdsa.PrivateKey)}, nil
}

// Issue returns a certificate with this common name for a client, and for a server at the hosts, which are DNS names or
// IPs.
func (a *Authority) Issue(name string, hosts []string, changes ...Change) (*Leaf, error) {
	return sign(a, name, hosts, changes)
}

// Write writes the leaf to name.crt and name.key in a folder, replacing each file by a rename like a mounted Secret.
func (l *Leaf) Write(folder, name string) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(folder, name+".crt"), filepath.Join(folder, name+".key")
	for path, content := range map[string][]byte{certFile: l.Certificate, keyFile: l.Key} {
		if err := os.WriteFile(path+".new", content, 0o600); err != nil {
			return "", "", err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return "", "", fmt.Errorf("replace %s: %w", path, err)
		}
	}
	return certFile, keyFile, nil
}

// sign returns a certificate for a new key, self-signed if there is no parent.
func sign(parent *Authority, name string, hosts []string, changes []Change) (*Leaf, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the key of %s: %w", name, err)
	}
	template := &x509.Certificate{
		NotBefore: notBefore, NotAfter: notAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	template.Subject.CommonName = name
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	for _, change := range changes {
		change(template)
	}
	if parent == nil {
		parent = &Authority{Certificate: template, Key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.Certificate, key.Public(), parent.Key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", name, err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encode the key of %s: %w", name, err)
	}
	return &Leaf{
		TLS:         tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		Certificate: pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}),
		Key:         encoded,
	}, nil
}
