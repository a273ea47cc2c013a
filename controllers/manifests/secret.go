// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
)

// TLSSecret returns the Secret that serving pods mount: their certificate, its key, and the
// authorities that verify it, in PEM.
func TLSSecret(s Serving, certificate, key, caBundle []byte) *corev1ac.SecretApplyConfiguration {
	return corev1ac.Secret(s.TLSSecretName(), s.Namespace).
		WithLabels(s.Labels()).
		WithType(corev1.SecretTypeTLS).
		WithData(map[string][]byte{
			v1alpha1.SecretKeyCertificate: certificate,
			v1alpha1.SecretKeyPrivateKey:  key,
			v1alpha1.SecretKeyCA:          caBundle,
		})
}

// SecretOfOthers returns the name of a Secret that the user or cert-manager writes.
func SecretOfOthers(s Serving, name string) *corev1ac.SecretApplyConfiguration {
	return corev1ac.Secret(name, s.Namespace)
}

// Authorities are the key pairs in CASecret. Next is empty except during a rotation.
type Authorities struct {
	// Current signs certificates, and every client trusts it.
	Current servingcert.KeyPair
	// Next replaces Current once every client trusts it.
	Next servingcert.KeyPair
	// Rotated is the last value of AnnotationRotate that was applied.
	Rotated string
}

// CASecret returns the Secret with the authority that signs serving certificates, and the
// next one. Only the operator reads it.
func CASecret(s Serving, a Authorities) *corev1ac.SecretApplyConfiguration {
	// The Secret's type requires both keys; they are empty before the first authority.
	data := map[string][]byte{
		v1alpha1.SecretKeyCertificate: append([]byte{}, a.Current.Certificate...),
		v1alpha1.SecretKeyPrivateKey:  append([]byte{}, a.Current.Key...),
	}
	if len(a.Next.Certificate) > 0 {
		data[v1alpha1.SecretKeyNextCertificate] = a.Next.Certificate
		data[v1alpha1.SecretKeyNextPrivateKey] = a.Next.Key
	}
	secret := corev1ac.Secret(s.CASecretName(), s.Namespace).
		WithLabels(s.Labels()).
		WithType(corev1.SecretTypeTLS).
		WithData(data)
	if a.Rotated != "" {
		secret.WithAnnotations(map[string]string{v1alpha1.AnnotationRotated: a.Rotated})
	}
	return secret
}

// CertManagerGroup is the API group of cert-manager's objects.
const CertManagerGroup = "cert-manager.io"

// CertificateKind is the kind of cert-manager's requests, in the only version that it still serves.
var CertificateKind = schema.GroupVersionKind{Group: CertManagerGroup, Version: "v1", Kind: "Certificate"}

// CertificateApplyConfiguration has the fields of cert-manager's Certificate that are
// applied. cert-manager's own Go types would bring in all of its dependencies.
type CertificateApplyConfiguration struct {
	metav1ac.TypeMetaApplyConfiguration    `json:",inline"`
	*metav1ac.ObjectMetaApplyConfiguration `json:"metadata,omitempty"`

	Spec map[string]any `json:"spec,omitempty"`
}

// IsApplyConfiguration implements runtime.ApplyConfiguration.
func (CertificateApplyConfiguration) IsApplyConfiguration() {}

// Certificate returns cert-manager's request for the serving certificate. The resulting
// Secret has our labels, so that the operator watches each renewal.
func Certificate(s Serving, issuer v1alpha1.IssuerReference) *CertificateApplyConfiguration {
	apiVersion, kind := CertificateKind.ToAPIVersionAndKind()
	return &CertificateApplyConfiguration{
		TypeMetaApplyConfiguration: metav1ac.TypeMetaApplyConfiguration{Kind: &kind, APIVersion: &apiVersion},
		ObjectMetaApplyConfiguration: &metav1ac.ObjectMetaApplyConfiguration{
			Name: new(s.Name()), Namespace: new(s.Namespace), Labels: s.Labels(),
		},
		Spec: map[string]any{
			"secretName":     s.IssuedSecretName(),
			"secretTemplate": map[string]any{"labels": s.Labels()},
			"dnsNames":       s.DNSNames(),
			"usages":         []string{"digital signature", "server auth"},
			// A new key with each renewal, as with our own authority.
			"privateKey": map[string]any{"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
			"issuerRef":  map[string]any{"name": issuer.Name, "kind": issuer.Kind, "group": issuer.Group},
		},
	}
}
