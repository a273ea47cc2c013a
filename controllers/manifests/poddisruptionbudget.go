// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"
)

// PodDisruptionBudget keeps one pod during node drains. It returns nil for a single replica,
// whose node could otherwise not be drained.
func PodDisruptionBudget(s Serving) *policyv1ac.PodDisruptionBudgetApplyConfiguration {
	if *s.Spec.Replicas < 2 {
		return nil
	}
	return policyv1ac.PodDisruptionBudget(s.Name(), s.Namespace).
		WithLabels(s.Labels()).
		WithSpec(policyv1ac.PodDisruptionBudgetSpec().
			WithMinAvailable(intstr.FromInt32(1)).
			// A pod that is not ready serves nobody and may be evicted.
			WithUnhealthyPodEvictionPolicy(policyv1.AlwaysAllow).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(s.Selector())))
}
