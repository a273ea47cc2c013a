// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

// Service returns the Service by which the aggregator reaches the serving pods.
func Service(s Serving) *corev1ac.ServiceApplyConfiguration {
	return corev1ac.Service(s.Name(), s.Namespace).
		WithLabels(s.Labels()).
		WithSpec(corev1ac.ServiceSpec().
			WithType(corev1.ServiceTypeClusterIP).
			WithSelector(s.Selector()).
			WithPorts(corev1ac.ServicePort().
				WithName(PortName).
				WithProtocol(corev1.ProtocolTCP).
				WithPort(ServicePort).
				WithTargetPort(intstr.FromString(PortName))))
}
