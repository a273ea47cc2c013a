// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Certificates hold for the whole century: their clients read the real clock,
// whatever the fleet's clock says.
var (
	notBefore = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	notAfter  = time.Date(2099, 12, 31, 0, 0, 0, 0, time.UTC)
)

// Authority signs kubelet certificates.
type Authority struct {
	// PEM of the CA's certificate, what a client has to trust.
	PEM []byte

	certificate *x509.Certificate
	key         any
}

// NewAuthority makes a CA of that common name.
func NewAuthority(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating the key of %s: %w", name, err)
	}
	template, err := newTemplate(name)
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing %s: %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", name, err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
	return &Authority{PEM: block, certificate: certificate, key: key}, nil
}

// LoadAuthority reads a CA's certificate and key from PEM files, such as the ones
// a cluster signs its kubelets' serving certificates with.
func LoadAuthority(certificateFile, keyFile string) (*Authority, error) {
	certificates, err := cert.CertsFromFile(certificateFile)
	if err != nil {
		return nil, fmt.Errorf("loading the CA: %w", err)
	}
	key, err := keyutil.PrivateKeyFromFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("loading the CA's key: %w", err)
	}
	if !certificates[0].IsCA {
		return nil, fmt.Errorf("%s: %q is not a CA", certificateFile, certificates[0].Subject.CommonName)
	}
	block, err := os.ReadFile(certificateFile)
	if err != nil {
		return nil, fmt.Errorf("loading the CA: %w", err)
	}
	return &Authority{PEM: block, certificate: certificates[0], key: key}, nil
}

// issue signs a serving certificate as kubelets have it: system:node:NAME, with
// the name and the address as subject alternative names.
func (a *Authority) issue(name string, address net.IP) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating the key of node %s: %w", name, err)
	}
	template, err := newTemplate("system:node:" + name)
	if err != nil {
		return nil, err
	}
	template.Subject.Organization = []string{"system:nodes"}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames, template.IPAddresses = []string{name}, []net.IP{address}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("signing the certificate of node %s: %w", name, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func newTemplate(commonName string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("drawing a serial number for %s: %w", commonName, err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName},
		NotBefore:    notBefore,
		NotAfter:     notAfter,
	}, nil
}

// certificates of one node, each made in the first handshake that needs it.
type certificates struct {
	mu     sync.Mutex
	byKind map[Kind]*tls.Certificate
}

// get returns what the node presents under that fault, or makes it.
func (c *certificates) get(kind Kind, issue func() (*tls.Certificate, error)) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if made := c.byKind[kind]; made != nil {
		return made, nil
	}
	made, err := issue()
	if err != nil {
		return nil, err
	}
	if c.byKind == nil {
		c.byKind = map[Kind]*tls.Certificate{}
	}
	c.byKind[kind] = made
	return made, nil
}

func (c *certificates) forget(kind Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byKind, kind)
}

// certificateOf is what the node presents now.
func (f *Fleet) certificateOf(n *Node) (*tls.Certificate, error) {
	kind := n.Fault().Kind
	if !kind.onConnection() {
		kind = ""
	}
	return n.certificates.get(kind, func() (*tls.Certificate, error) {
		address := net.IP(n.address.Addr().AsSlice())
		switch kind {
		case WrongCA:
			return f.impostor.issue(n.Name, address)
		case WrongName:
			return f.authority.issue("somebody-else", net.IPv4(192, 0, 2, 1))
		default:
			return f.authority.issue(n.Name, address)
		}
	})
}
