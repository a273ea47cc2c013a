// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/x509"
	"fmt"
	"os"

	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// trustRoots makes this process trust the public CA certificates, which the image does not
// have, and those in extra unless it is empty. Certificates of the system, and those that
// SSL_CERT_FILE and SSL_CERT_DIR name, replace both. It must be called once.
func trustRoots(extra string) error {
	roots := x509.NewCertPool()
	for root := range bundle.Roots() {
		certificate, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			return fmt.Errorf("parse the public CA certificates: %w", err)
		}
		roots.AddCertWithConstraint(certificate, root.Constraint)
	}
	if extra != "" {
		pem, err := os.ReadFile(extra)
		if err != nil {
			return fmt.Errorf("read the CA certificates of spec.serving.caConfigMap (%s): %w", v1alpha1.ExtraCAVariable, err)
		}
		if !roots.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s has no CA certificate in PEM: correct the key of the ConfigMap that spec.serving.caConfigMap names (%s)", extra, v1alpha1.ExtraCAVariable)
		}
	}
	x509.SetFallbackRoots(roots)
	return nil
}
