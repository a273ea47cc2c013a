// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"crypto/tls"
	"crypto/x509"

	"github.com/metricsbackend/metrics-backend-operator/test/authority"
)

// kubeletCertificate signs a serving certificate as kubelets have it: system:node:NAME, with
// the name and the address as subject alternative names.
func kubeletCertificate(a *authority.Authority, name, address string) (*tls.Certificate, error) {
	leaf, err := a.Issue("system:node:"+name, []string{name, address}, func(c *x509.Certificate) {
		c.Subject.Organization = []string{"system:nodes"}
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	if err != nil {
		return nil, err
	}
	return &leaf.TLS, nil
}
