// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// NetworkPolicy restricts the serving pods to their API port, and to TCP and DNS
// outwards; nil unless it was asked for.
//
// Ingress has no peers: kube-apiserver usually comes from a node's own network,
// which no selector can name, and requests are authenticated anyway. Egress has
// no peers for the same reason (kubelets and kube-apiserver), and names ports
// where they are known. With hostNetwork most network plugins ignore policies.
func NetworkPolicy(s Serving) *networkingv1ac.NetworkPolicyApplyConfiguration {
	if s.Spec.NetworkPolicy != v1alpha1.NetworkPolicyRestricted {
		return nil
	}
	return networkingv1ac.NetworkPolicy(s.Name(), s.Namespace).
		WithLabels(s.Labels()).
		WithSpec(networkingv1ac.NetworkPolicySpec().
			WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(s.Selector())).
			WithPolicyTypes(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress).
			WithIngress(networkingv1ac.NetworkPolicyIngressRule().WithPorts(
				policyPort(corev1.ProtocolTCP, intstr.FromString(PortName)))).
			WithEgress(networkingv1ac.NetworkPolicyEgressRule().WithPorts(
				policyPort(corev1.ProtocolUDP, intstr.FromInt32(53)),
				policyPort(corev1.ProtocolTCP, intstr.FromInt32(53)),
				// kube-apiserver: through its Service, and as its usual own ports.
				policyPort(corev1.ProtocolTCP, intstr.FromInt32(443)),
				policyPort(corev1.ProtocolTCP, intstr.FromInt32(6443)),
				policyPort(corev1.ProtocolTCP, intstr.FromInt32(8443)),
				// Peers, which the first readiness asks.
				policyPort(corev1.ProtocolTCP, intstr.FromString(PortName)),
				policyPort(corev1.ProtocolTCP, intstr.FromInt32(s.KubeletPort)))))
}

func policyPort(protocol corev1.Protocol, port intstr.IntOrString) *networkingv1ac.NetworkPolicyPortApplyConfiguration {
	return networkingv1ac.NetworkPolicyPort().WithProtocol(protocol).WithPort(port)
}
