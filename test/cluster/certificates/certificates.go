// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificates is the cluster's public key infrastructure: three authorities, the certificates of
// the components, and the key that signs ServiceAccount tokens.
package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// renewal is how long before its expiry the next "up" renews a certificate.
	renewal = 30 * 24 * time.Hour
)

// Request says what a certificate is for.
type Request struct {
	// Name is the file's, without extension.
	Name string
	// CommonName and Organization are the user and the group to Kubernetes.
	CommonName   string
	Organization string
	// Hosts are the DNS names and IPs of a server; none makes a client's certificate.
	Hosts []string
	// Both makes a server's certificate valid for a client, as etcd's peers need.
	Both bool
}

// pair is a certificate and its key.
type pair struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// Store keeps certificates as NAME.crt and NAME.key in a folder.
type Store struct {
	Folder string
	Now    func() time.Time
}

// Certificate is the path of a certificate, and Key that of its key.
func (s Store) Certificate(name string) string { return filepath.Join(s.Folder, name+".crt") }

// Key is the path of a private key.
func (s Store) Key(name string) string { return filepath.Join(s.Folder, name+".key") }

// Ensure makes the authority and the certificates it signs, where they are missing, near their end, or not
// what is asked for. It returns the names of those it made.
func (s Store) Ensure(authority string, requests ...Request) ([]string, error) {
	var made []string
	ca, err := s.load(authority)
	if err != nil || s.ending(ca.certificate) {
		ca, err = s.issue(Request{Name: authority, CommonName: authority}, nil)
		if err != nil {
			return nil, err
		}
		made = append(made, authority)
	}
	for _, request := range requests {
		have, err := s.load(request.Name)
		if err == nil && !s.ending(have.certificate) && request.matches(have.certificate) &&
			have.certificate.CheckSignatureFrom(ca.certificate) == nil {
			continue
		}
		if _, err := s.issue(request, &ca); err != nil {
			return nil, err
		}
		made = append(made, request.Name)
	}
	return made, nil
}

func (s Store) ending(certificate *x509.Certificate) bool {
	return s.Now().Add(renewal).After(certificate.NotAfter)
}

func (r Request) matches(c *x509.Certificate) bool {
	dns, ips := r.names()
	return c.Subject.CommonName == r.CommonName &&
		slices.Equal(c.Subject.Organization, r.organizations()) &&
		slices.Equal(c.DNSNames, dns) &&
		slices.EqualFunc(c.IPAddresses, ips, net.IP.Equal) &&
		slices.Equal(c.ExtKeyUsage, r.usages())
}

func (r Request) organizations() []string {
	if r.Organization == "" {
		return nil
	}
	return []string{r.Organization}
}

func (r Request) names() (dns []string, ips []net.IP) {
	for _, host := range r.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			ips = append(ips, ip)
		} else {
			dns = append(dns, host)
		}
	}
	return dns, ips
}

func (r Request) usages() []x509.ExtKeyUsage {
	switch {
	case len(r.Hosts) == 0:
		return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	case r.Both:
		return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	default:
		return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
}

// issue makes and writes a certificate; without a parent it is an authority's.
func (s Store) issue(request Request, parent *pair) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("making the key of %s: %w", request.Name, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return pair{}, fmt.Errorf("making the serial number of %s: %w", request.Name, err)
	}
	// An hour back: clocks of other machines.
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: request.CommonName, Organization: request.organizations()},
		NotBefore:    s.Now().Add(-time.Hour),
		NotAfter:     s.Now().Add(leafLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
	if parent == nil {
		template.NotAfter = s.Now().Add(authorityLife)
		template.KeyUsage |= x509.KeyUsageCertSign
		template.IsCA, template.BasicConstraintsValid = true, true
		parent = &pair{template, key}
	} else {
		template.DNSNames, template.IPAddresses = request.names()
		template.ExtKeyUsage = request.usages()
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.certificate, key.Public(), parent.key)
	if err != nil {
		return pair{}, fmt.Errorf("signing %s: %w", request.Name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return pair{}, fmt.Errorf("reading back %s: %w", request.Name, err)
	}
	if err := s.writeKey(s.Key(request.Name), key); err != nil {
		return pair{}, err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := state.WriteFile(s.Certificate(request.Name), block, 0o644); err != nil {
		return pair{}, err
	}
	return pair{certificate, key}, nil
}

func (s Store) writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	return state.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

func (s Store) load(name string) (pair, error) {
	certificateDER, err := readPEM(s.Certificate(name), "CERTIFICATE")
	if err != nil {
		return pair{}, err
	}
	certificate, err := x509.ParseCertificate(certificateDER)
	if err != nil {
		return pair{}, fmt.Errorf("reading %s: %w", s.Certificate(name), err)
	}
	keyDER, err := readPEM(s.Key(name), "PRIVATE KEY")
	if err != nil {
		return pair{}, err
	}
	key, err := x509.ParsePKCS8PrivateKey(keyDER)
	if err != nil {
		return pair{}, fmt.Errorf("reading %s: %w", s.Key(name), err)
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return pair{}, fmt.Errorf("reading %s: not an ECDSA key", s.Key(name))
	}
	// A run killed between the two files leaves a key that is not the certificate's.
	if !private.PublicKey.Equal(certificate.PublicKey) {
		return pair{}, fmt.Errorf("reading %s: the key is not the certificate's", s.Key(name))
	}
	return pair{certificate, private}, nil
}

func readPEM(path, kind string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("reading %s: no %s in PEM", path, kind)
	}
	return block.Bytes, nil
}

// EnsureSigningKey makes the key pair NAME.key and NAME.pub of ServiceAccount tokens, unless it is there.
func (s Store) EnsureSigningKey(name string) (made bool, err error) {
	public := filepath.Join(s.Folder, name+".pub")
	_, missingKey := os.Stat(s.Key(name))
	_, missingPublic := os.Stat(public)
	if missingKey == nil && missingPublic == nil {
		return false, nil
	}
	if err := errors.Join(missingKey, missingPublic); !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("looking for the token signing key: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return false, fmt.Errorf("making the token signing key: %w", err)
	}
	if err := s.writeKey(s.Key(name), key); err != nil {
		return false, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return false, fmt.Errorf("encoding the token signing key: %w", err)
	}
	return true, state.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644)
}
