// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

// ServiceAccount is the identity of the serving pods. They mount its token by
// their own spec; no other pod gets it by naming the account alone.
func ServiceAccount(s Serving) *corev1ac.ServiceAccountApplyConfiguration {
	return corev1ac.ServiceAccount(s.Name(), s.Namespace).
		WithLabels(s.Labels()).
		WithAutomountServiceAccountToken(false)
}

// ProberServiceAccount is the identity with which the operator asks serving
// pods: a pod that is taken over learns a token that may read discovery only.
func ProberServiceAccount(s Serving) *corev1ac.ServiceAccountApplyConfiguration {
	return corev1ac.ServiceAccount(s.ProberName(), s.Namespace).
		WithLabels(s.Labels()).
		WithAutomountServiceAccountToken(false)
}

// GuestServiceAccount is the identity with which the operator asks implementations
// that someone else runs. Nothing is granted to it: whoever answers there learns a
// token that is worth what any account of the cluster is, and that for ten minutes.
func GuestServiceAccount(s Serving) *corev1ac.ServiceAccountApplyConfiguration {
	return corev1ac.ServiceAccount(s.GuestName(), s.Namespace).
		WithLabels(s.Labels()).
		WithAutomountServiceAccountToken(false)
}
