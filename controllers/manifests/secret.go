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

// CASecret holds the authority that signs serving certificates. Only the
// operator reads it.
func CASecret(s Serving, certificate, key []byte) *corev1ac.SecretApplyConfiguration {
	return corev1ac.Secret(s.CASecretName(), s.Namespace).
		WithLabels(s.Labels()).
		WithType(corev1.SecretTypeTLS).
		WithData(map[string][]byte{
			v1alpha1.SecretKeyCertificate: certificate,
			v1alpha1.SecretKeyPrivateKey:  key,
		})
}
