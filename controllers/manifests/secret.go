// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// TLSSecret is what serving pods mount: their certificate, its key, and the
// authorities to verify it with. All PEM.
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

// IssuedSecret names the Secret that cert-manager keeps.
func IssuedSecret(s Serving) *corev1ac.SecretApplyConfiguration {
	return corev1ac.Secret(s.IssuedSecretName(), s.Namespace)
}

// ProvidedSecret names the Secret that the user keeps.
func ProvidedSecret(s Serving, name string) *corev1ac.SecretApplyConfiguration {
	return corev1ac.Secret(name, s.Namespace)
}

// Authorities are the pairs in CASecret, all PEM. Next is empty but while one
// authority is replaced by another.
type Authorities struct {
	Certificate, Key         []byte
	NextCertificate, NextKey []byte
	// Rotated is the last value of spec.serving.certificates.rotate that was heeded.
	Rotated string
}

// CASecret holds the authority that signs serving certificates, and the one that
// will. Only the operator reads it.
func CASecret(s Serving, a Authorities) *corev1ac.SecretApplyConfiguration {
	// The type demands both keys; they are empty while no authority is in use yet.
	data := map[string][]byte{
		v1alpha1.SecretKeyCertificate: append([]byte{}, a.Certificate...),
		v1alpha1.SecretKeyPrivateKey:  append([]byte{}, a.Key...),
	}
	if len(a.NextCertificate) > 0 {
		data[v1alpha1.SecretKeyNextCertificate] = a.NextCertificate
		data[v1alpha1.SecretKeyNextPrivateKey] = a.NextKey
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
