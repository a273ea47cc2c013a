// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// CheckAuthority returns an error if authority can no longer sign serving certificates.
func (i *Issuer) CheckAuthority(authority KeyPair) error {
	ca, _, err := authority.parse()
	if err != nil {
		return err
	}
	if !ca.IsCA {
		return errors.New("the certificate is not an authority's")
	}
	return i.checkTime(ca)
}

// CheckAuthorityAge returns an error if the authority is due for replacement.
func (i *Issuer) CheckAuthorityAge(authority KeyPair) error {
	ca, _, err := authority.parse()
	if err != nil {
		return err
	}
	lifetime := min(ca.NotAfter.Sub(ca.NotBefore), AuthorityLifetime) // NotBefore is backdated
	if i.clock.Now().After(ca.NotAfter.Add(-lifetime / authorityRenewWhenLeft)) {
		return fmt.Errorf("the authority expires on %s", day(ca.NotAfter))
	}
	return nil
}

// CheckLeaf returns an error if leaf must be replaced: it is damaged, not signed by
// authority, not for exactly these names, or in the last third of its lifetime while a new
// one would be valid for longer.
func (i *Issuer) CheckLeaf(leaf, authority KeyPair, names []string) error {
	chain, err := leaf.Chain()
	if err != nil {
		return err
	}
	ca, _, err := authority.parse()
	if err != nil {
		return fmt.Errorf("the authority cannot be used: %w", err)
	}
	if err := i.Verify(chain, NewBundle(ca), names[0]); err != nil {
		return err
	}
	c := chain[0]
	if !slices.Equal(c.DNSNames, names) {
		return fmt.Errorf("is for %q, want %q", c.DNSNames, names)
	}
	lifetime := min(c.NotAfter.Sub(c.NotBefore), LeafLifetime) // NotBefore is the authority's
	if i.clock.Now().After(c.NotAfter.Add(-lifetime/leafRenewWhenLeft)) && c.NotAfter.Before(ca.NotAfter) {
		return fmt.Errorf("expires on %s", day(c.NotAfter))
	}
	return nil
}

// Verify returns an error if a client that trusts bundle would reject a server with this
// chain, leaf first, for name, or for any name if it is empty. The error is the same each
// time for the same failure.
func (i *Issuer) Verify(chain []*x509.Certificate, bundle Bundle, name string) error {
	if len(chain) == 0 {
		return errors.New("there is no certificate")
	}
	if err := i.checkTime(chain[0]); err != nil {
		return err
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: bundle.pool(), Intermediates: NewBundle(chain[1:]...).pool(),
		CurrentTime: i.clock.Now(), DNSName: name,
	})
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		// The error holds the current time.
		return fmt.Errorf("its authority %q is not valid today", invalid.Cert.Subject)
	}
	return err
}

// InUse returns the certificates of the bundle that verify at least one of the chains.
func (i *Issuer) InUse(bundle Bundle, chains ...[]*x509.Certificate) Bundle {
	return slices.DeleteFunc(slices.Clone(bundle), func(c *x509.Certificate) bool {
		return !slices.ContainsFunc(chains, func(chain []*x509.Certificate) bool {
			return i.Verify(chain, Bundle{c}, "") == nil
		})
	})
}

// EndsSoon reports whether the certificate's renewal is overdue: less than a fifth of its
// lifetime is left, and less than 14 days.
func (i *Issuer) EndsSoon(c *x509.Certificate) bool {
	return c.NotAfter.Sub(i.clock.Now()) < min(c.NotAfter.Sub(c.NotBefore)/5, 14*24*time.Hour)
}

func (i *Issuer) checkTime(c *x509.Certificate) error {
	switch now := i.clock.Now(); {
	case now.After(c.NotAfter):
		return fmt.Errorf("expired on %s", day(c.NotAfter))
	case now.Before(c.NotBefore):
		return fmt.Errorf("not valid before %s", day(c.NotBefore))
	}
	return nil
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// UnusableError means that a certificate cannot be served. Its message says what to do, contains
// no key, and is the same each time for the same failure.
type UnusableError struct {
	// Reason is that of condition CertificatesValid.
	Reason, Message string
	// Transient: it may end without user action.
	Transient bool
}

// Error implements error.
func (e *UnusableError) Error() string { return e.Message }

func unusable(reason, format string, args ...any) *UnusableError {
	return &UnusableError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// CheckProvided returns an error if the certificate in a Secret's data cannot be served for
// name.
func (i *Issuer) CheckProvided(data map[string][]byte, name string) *UnusableError {
	var missing []string
	for _, key := range []string{v1alpha1.SecretKeyCertificate, v1alpha1.SecretKeyPrivateKey, v1alpha1.SecretKeyCA} {
		if len(data[key]) == 0 {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		return unusable(v1alpha1.ReasonCertificateInvalid, "it lacks %s: put it there", strings.Join(missing, ", "))
	}
	authorities := ParseBundle(data[v1alpha1.SecretKeyCA])
	if len(authorities) == 0 {
		return unusable(v1alpha1.ReasonCertificateInvalid, "ca.crt holds no certificate in PEM: put the authority there that signed tls.crt")
	}
	served := ParseBundle(data[v1alpha1.SecretKeyCertificate])
	if len(served) == 0 {
		return unusable(v1alpha1.ReasonCertificateInvalid, "tls.crt holds no certificate in PEM")
	}
	chain, err := Provided(data).Chain()
	if err != nil {
		return unusable(v1alpha1.ReasonCertificateMismatch, "tls.crt and tls.key cannot be used together: %v", err)
	}
	if err := i.checkTime(chain[0]); err != nil {
		return unusable(v1alpha1.ReasonCertificateExpired, "tls.crt %v: renew it", err)
	}
	if err := chain[0].VerifyHostname(name); err != nil {
		return unusable(v1alpha1.ReasonCertificateMismatch, "tls.crt is not for %s, by which kube-apiserver verifies it: issue it with this DNS name", name)
	}
	if err := i.Verify(chain, authorities, name); err != nil {
		return unusable(v1alpha1.ReasonCertificateMismatch,
			"ca.crt does not verify tls.crt (%v): put the authority that signed it into ca.crt, and intermediates into tls.crt", err)
	}
	return nil
}

// Provided returns the KeyPair in a Secret's data.
func Provided(data map[string][]byte) KeyPair {
	return KeyPair{Certificate: data[v1alpha1.SecretKeyCertificate], Key: data[v1alpha1.SecretKeyPrivateKey]}
}
