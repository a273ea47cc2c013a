// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/x509"
	"fmt"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// trustRoots makes this process trust the public CA certificates, which the image does not
// have. Certificates of the system, and those that SSL_CERT_FILE and SSL_CERT_DIR name,
// replace them. It must be called once.
func trustRoots() error {
	roots := x509.NewCertPool()
	for root := range bundle.Roots() {
		certificate, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			return fmt.Errorf("parse the public CA certificates: %w", err)
		}
		roots.AddCertWithConstraint(certificate, root.Constraint)
	}
	x509.SetFallbackRoots(roots)
	return nil
}
