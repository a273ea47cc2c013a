// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// NetworkPolicy restricts ingress of the serving pods to their API port, and egress to the
// ports of DNS, kube-apiserver, kubelets and sources. It returns nil unless the spec has it.
//
// Ingress has no peers: kube-apiserver usually comes from a node's own network,
// which no selector can name, and requests are authenticated anyway. Egress has
// no peers for the same reason (kubelets and kube-apiserver), and names ports
// where they are known. With hostNetwork most network plugins ignore policies.
func NetworkPolicy(s Serving) *networkingv1ac.NetworkPolicyApplyConfiguration {
	if s.Spec.NetworkPolicy != v1alpha1.NetworkPolicyRestricted {
		return nil
	}
	// Policies are enforced after a Service's address is translated: OpenShift's DNS pods listen on 5353.
	ports := sets.New(53, 5353, 443, 6443, 8443, s.KubeletPort).Insert(s.APIServerPorts...).Insert(s.sourcePorts()...)
	for _, rule := range s.PolicyBefore.Spec.Egress {
		for _, p := range rule.Ports {
			// Not what somebody added in a form that no rule of ours has: without its peers, a port would be open to all.
			if len(rule.To) == 0 && ptr.Deref(p.Protocol, "") == corev1.ProtocolTCP && p.EndPort == nil && p.Port != nil && p.Port.IntVal > 0 {
				ports.Insert(p.Port.IntVal)
			}
		}
	}
	egress := []*networkingv1ac.NetworkPolicyPortApplyConfiguration{
		policyPort(corev1.ProtocolUDP, intstr.FromInt32(53)),
		policyPort(corev1.ProtocolUDP, intstr.FromInt32(5353)),
		// Peers, which the first readiness asks.
		policyPort(corev1.ProtocolTCP, intstr.FromString(PortName)),
	}
	for _, port := range sets.List(ports) {
		egress = append(egress, policyPort(corev1.ProtocolTCP, intstr.FromInt32(port)))
	}
	return networkingv1ac.NetworkPolicy(s.Name(), s.Namespace).
		WithLabels(s.Labels()).
		WithSpec(networkingv1ac.NetworkPolicySpec().
			WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(s.Selector())).
			WithPolicyTypes(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress).
			WithIngress(networkingv1ac.NetworkPolicyIngressRule().WithPorts(
				policyPort(corev1.ProtocolTCP, intstr.FromString(PortName)))).
			WithEgress(networkingv1ac.NetworkPolicyEgressRule().WithPorts(egress...)))
}

// sourcePorts returns the ports of the URLs of sources and their authorization servers, and of the
// Services of other implementations. Sources behind a Service with another target port need a policy of
// the user's own, except for 6443 and 8443, which implementations of metrics APIs mostly listen on.
func (s Serving) sourcePorts() []int32 {
	var ports []int32
	for i := range s.Sources {
		if p := s.Sources[i].Prometheus; p != nil {
			for _, u := range []string{p.URL, ptr.Deref(p.Authentication.OAuth2, v1alpha1.SourceOAuth2{}).TokenURL} {
				if port, ok := portOfURL(u); ok {
					ports = append(ports, port)
				}
			}
		}
		if m := s.Sources[i].MetricsAPI; m != nil {
			ports = append(ports, ptr.Deref(m.Service.Port, v1alpha1.DefaultExistingPort))
		}
	}
	return ports
}

func portOfURL(text string) (int32, bool) {
	u, err := url.Parse(text)
	if err != nil {
		return 0, false // the spec is refused elsewhere
	}
	number := u.Port()
	if number == "" {
		number = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	port, err := strconv.ParseUint(number, 10, 16)
	return int32(port), err == nil && port > 0
}

func policyPort(protocol corev1.Protocol, port intstr.IntOrString) *networkingv1ac.NetworkPolicyPortApplyConfiguration {
	return networkingv1ac.NetworkPolicyPort().WithProtocol(protocol).WithPort(port)
}
