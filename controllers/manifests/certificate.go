// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	// CertManagerGroup is the API group of cert-manager's objects.
	CertManagerGroup = "cert-manager.io"
	// CertificateKind is the kind of its object that asks for a certificate.
	CertificateKind = "Certificate"
	// CertManagerVersion is the only version that cert-manager still serves.
	CertManagerVersion = "v1"
)

// CertificateApplyConfiguration is the part of cert-manager's Certificate that is
// applied. Its Go types are not imported: they would bring all of cert-manager.
type CertificateApplyConfiguration struct {
	metav1ac.TypeMetaApplyConfiguration    `json:",inline"`
	*metav1ac.ObjectMetaApplyConfiguration `json:"metadata,omitempty"`

	Spec *CertificateSpec `json:"spec,omitempty"`
}

// CertificateSpec is spec of a Certificate.
type CertificateSpec struct {
	SecretName     string                    `json:"secretName"`
	SecretTemplate CertificateSecretTemplate `json:"secretTemplate"`
	DNSNames       []string                  `json:"dnsNames"`
	Usages         []string                  `json:"usages"`
	PrivateKey     CertificatePrivateKey     `json:"privateKey"`
	IssuerRef      CertificateIssuerRef      `json:"issuerRef"`
}

// CertificateSecretTemplate is what cert-manager adds to the Secret.
type CertificateSecretTemplate struct {
	Labels map[string]string `json:"labels"`
}

// CertificatePrivateKey says which key cert-manager makes.
type CertificatePrivateKey struct {
	Algorithm      string `json:"algorithm"`
	Size           int    `json:"size"`
	RotationPolicy string `json:"rotationPolicy"`
}

// CertificateIssuerRef names the issuer.
type CertificateIssuerRef struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Group string `json:"group"`
}

// IsApplyConfiguration implements runtime.ApplyConfiguration.
func (CertificateApplyConfiguration) IsApplyConfiguration() {}

// GetKind implements Object.
func (c *CertificateApplyConfiguration) GetKind() *string { return c.Kind }

// GetAPIVersion implements Object.
func (c *CertificateApplyConfiguration) GetAPIVersion() *string { return c.APIVersion }

// GetName implements Object.
func (c *CertificateApplyConfiguration) GetName() *string { return c.Name }

// GetNamespace implements Object.
func (c *CertificateApplyConfiguration) GetNamespace() *string { return c.Namespace }

// Certificate asks cert-manager for the serving certificate. The Secret that it
// makes carries our labels, so that the operator sees each renewal at once.
func Certificate(s Serving, issuer v1alpha1.IssuerReference) *CertificateApplyConfiguration {
	kind, apiVersion, name, namespace := CertificateKind, CertManagerGroup+"/"+CertManagerVersion, s.Name(), s.Namespace
	return &CertificateApplyConfiguration{
		TypeMetaApplyConfiguration: metav1ac.TypeMetaApplyConfiguration{Kind: &kind, APIVersion: &apiVersion},
		ObjectMetaApplyConfiguration: &metav1ac.ObjectMetaApplyConfiguration{
			Name: &name, Namespace: &namespace, Labels: s.Labels(),
		},
		Spec: &CertificateSpec{
			SecretName:     s.IssuedSecretName(),
			SecretTemplate: CertificateSecretTemplate{Labels: s.Labels()},
			DNSNames:       s.DNSNames(),
			Usages:         []string{"digital signature", "server auth"},
			// A new key with each renewal, as with our own authority.
			PrivateKey: CertificatePrivateKey{Algorithm: "ECDSA", Size: 256, RotationPolicy: "Always"},
			IssuerRef:  CertificateIssuerRef{Name: issuer.Name, Kind: issuer.Kind, Group: issuer.Group},
		},
	}
}
