// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

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
