// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"bytes"
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
	switch now := i.clock.Now(); {
	case err != nil:
		return err
	case !ca.IsCA:
		return errors.New("the certificate is not an authority's")
	case now.After(ca.NotAfter):
		return fmt.Errorf("expired on %s", day(ca.NotAfter))
	case now.Before(ca.NotBefore):
		return fmt.Errorf("not valid before %s", day(ca.NotBefore))
	}
	return nil
}

// CheckLeaf returns why leaf must be replaced, or nil: it is damaged, not signed
// by authority, not for exactly these names, or in the last third of its
// lifetime while a new one would live longer.
func (i *Issuer) CheckLeaf(leaf, authority KeyPair, names []string) error {
	c, _, err := leaf.parse()
	if err != nil {
		return err
	}
	ca, _, err := authority.parse()
	if err != nil {
		return fmt.Errorf("the authority cannot be used: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	now := i.clock.Now()
	if _, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: names[0]}); err != nil {
		return err
	}
	if !slices.Equal(c.DNSNames, names) {
		return fmt.Errorf("is for %q, want %q", c.DNSNames, names)
	}
	renewal := c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / renewWhenLeft)
	if now.After(renewal) && c.NotAfter.Before(ca.NotAfter) {
		return fmt.Errorf("expires on %s", day(c.NotAfter))
	}
	return nil
}

// Bundle returns the authorities to verify with: authority first, then those of
// the former bundles that are still valid, newest first, so that pods whose leaf
// is not reloaded yet stay trusted. Equal inputs give equal bytes.
func (i *Issuer) Bundle(authority KeyPair, former ...[]byte) ([]byte, error) {
	ca, _, err := authority.parse()
	if err != nil {
		return nil, fmt.Errorf("use the authority: %w", err)
	}
	trusted := []*x509.Certificate{}
	for _, bundle := range former {
		for _, c := range parseBundle(bundle) {
			if c.IsCA && i.clock.Now().Before(c.NotAfter) && !bytes.Equal(c.Raw, ca.Raw) && !contains(trusted, c) {
				trusted = append(trusted, c)
			}
		}
	}
	slices.SortFunc(trusted, func(a, b *x509.Certificate) int {
		if byTime := b.NotBefore.Compare(a.NotBefore); byTime != 0 {
			return byTime
		}
		return bytes.Compare(a.Raw, b.Raw)
	})
	if len(trusted) > maxBundle-1 {
		trusted = trusted[:maxBundle-1]
	}
	out := encodeCertificate(ca.Raw)
	for _, c := range trusted {
		out = append(out, encodeCertificate(c.Raw)...)
	}
	return out, nil
}

// NotAfter returns when the certificate expires.
func (p KeyPair) NotAfter() (time.Time, error) {
	c, _, err := p.parse()
	if err != nil {
		return time.Time{}, err
	}
	return c.NotAfter, nil
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }
