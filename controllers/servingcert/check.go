// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// CheckAuthority returns why authority cannot sign serving certificates any
// more, or nil.
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

// CheckAuthorityAge returns why a usable authority should be replaced in time, or nil.
func (i *Issuer) CheckAuthorityAge(authority KeyPair) error {
	ca, _, err := authority.parse()
	if err != nil {
		return err
	}
	lifetime := ca.NotAfter.Sub(ca.NotBefore)
	if i.clock.Now().After(ca.NotAfter.Add(-lifetime / authorityRenewWhenLeft)) {
		return fmt.Errorf("the authority expires on %s", day(ca.NotAfter))
	}
	return nil
}

// CheckLeaf returns why leaf must be replaced, or nil: it is damaged, not signed
// by authority, not for exactly these names, or in the last third of its
// lifetime while a new one would live longer.
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
	renewal := c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / leafRenewWhenLeft)
	if i.clock.Now().After(renewal) && c.NotAfter.Before(ca.NotAfter) {
		return fmt.Errorf("expires on %s", day(c.NotAfter))
	}
	return nil
}

// Verify returns why a client that trusts bundle would refuse a server for name
// that shows the chain, leaf first; or nil. Without a name, any will do. The
// errors do not change from one moment to the next.
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
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		// The error holds the current time.
		return fmt.Errorf("its authority %q is not valid today", invalid.Cert.Subject)
	}
	return err
}

// Valid returns the part of the bundle that has not expired.
func (i *Issuer) Valid(bundle Bundle) Bundle {
	return slices.DeleteFunc(slices.Clone(bundle), func(c *x509.Certificate) bool { return i.clock.Now().After(c.NotAfter) })
}

// InUse returns the part of the bundle that verifies one of the chains, each alone.
func (i *Issuer) InUse(bundle Bundle, chains ...[]*x509.Certificate) Bundle {
	return slices.DeleteFunc(slices.Clone(bundle), func(c *x509.Certificate) bool {
		return !slices.ContainsFunc(chains, func(chain []*x509.Certificate) bool {
			return i.Verify(chain, Bundle{c}, "") == nil
		})
	})
}

// EndsSoon tells whether the certificate should have been renewed by now: less
// than a fifth of its lifetime is left, and less than 14 days.
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
