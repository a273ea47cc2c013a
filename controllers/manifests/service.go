// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"net/url"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
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

// sourcePorts returns the ports of the URLs of sources and their authorization servers. Sources
// behind a Service with another target port need a policy of the user's own.
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

// unlimitedPods is a number of pods that no namespace has.
const unlimitedPods = "1G"

// systemPriorityClasses are those that clusters such as GKE limit to namespaces with a
// ResourceQuota for them.
var systemPriorityClasses = []string{"system-cluster-critical", "system-node-critical"}

// ResourceQuota returns the ResourceQuota with which kube-apiserver accepts pods of the
// system's priority classes where its admission configuration limits them. It restricts
// nothing. It is for both classes, so that pods of both can be created while a rollout
// replaces one by the other.
func ResourceQuota(s Serving) *corev1ac.ResourceQuotaApplyConfiguration {
	return corev1ac.ResourceQuota(s.Name(), s.Namespace).
		WithLabels(s.Labels()).
		WithSpec(corev1ac.ResourceQuotaSpec().
			WithHard(corev1.ResourceList{corev1.ResourcePods: resource.MustParse(unlimitedPods)}).
			WithScopeSelector(corev1ac.ScopeSelector().
				WithMatchExpressions(corev1ac.ScopedResourceSelectorRequirement().
					WithScopeName(corev1.ResourceQuotaScopePriorityClass).
					WithOperator(corev1.ScopeSelectorOpIn).
					WithValues(systemPriorityClasses...))))
}

// MayNeedQuota reports whether clusters are known to limit the spec's priority class.
func (s Serving) MayNeedQuota() bool {
	return slices.Contains(systemPriorityClasses, s.Spec.PriorityClassName)
}

// CoveredBy reports whether the quota's scopes select the spec's priority class. As in
// kube-apiserver's admission, one matching scope is enough, and usage does not matter.
func (s Serving) CoveredBy(quota *corev1.ResourceQuota) bool {
	if slices.Contains(quota.Spec.Scopes, corev1.ResourceQuotaScopePriorityClass) {
		return true
	}
	if quota.Spec.ScopeSelector == nil {
		return false
	}
	return slices.ContainsFunc(quota.Spec.ScopeSelector.MatchExpressions, func(scope corev1.ScopedResourceSelectorRequirement) bool {
		if scope.ScopeName != corev1.ResourceQuotaScopePriorityClass {
			return false
		}
		named := slices.Contains(scope.Values, s.Spec.PriorityClassName)
		switch scope.Operator {
		case corev1.ScopeSelectorOpIn:
			return named
		case corev1.ScopeSelectorOpNotIn:
			return !named
		case corev1.ScopeSelectorOpExists:
			return true
		}
		return false // DoesNotExist is for pods without a class
	})
}
