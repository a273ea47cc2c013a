// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func withClass(class string) Serving {
	return serving(func(spec *v1alpha1.ServingSpec) { spec.PriorityClassName = class })
}

// Our quota covers what it is for, whichever of both classes the spec names.
func TestResourceQuota(t *testing.T) {
	t.Parallel()
	for class, want := range map[string]bool{"": true, "system-cluster-critical": true, "system-node-critical": true, "mine": false} {
		s := withClass(class)
		if got := s.MayNeedQuota(); got != want {
			t.Errorf("class %q may need a quota: %t", class, got)
		}
		if got := s.CoveredBy(typed[corev1.ResourceQuota](t, ResourceQuota(s))); got != want {
			t.Errorf("our quota covers class %q: %t", class, got)
		}
	}
}

// It is applied before the Deployment, whose pods need it, and only if it is needed.
func TestAllWithQuota(t *testing.T) {
	t.Parallel()
	kinds := func(s Serving) (kinds []string) {
		for _, object := range All(s) {
			kinds = append(kinds, *object.GetKind())
		}
		return kinds
	}
	s := serving()
	if all := kinds(s); slices.Contains(all, "ResourceQuota") {
		t.Errorf("a ResourceQuota among %v", all)
	}
	s.Quota = true
	all := kinds(s)
	if quota, deployment := slices.Index(all, "ResourceQuota"), slices.Index(all, "Deployment"); quota < 0 || quota > deployment {
		t.Errorf("got %v, want the ResourceQuota before the Deployment", all)
	}
}

func TestCoveredBy(t *testing.T) {
	t.Parallel()
	selects := func(scopes ...corev1.ScopedResourceSelectorRequirement) corev1.ResourceQuotaSpec {
		return corev1.ResourceQuotaSpec{ScopeSelector: &corev1.ScopeSelector{MatchExpressions: scopes}}
	}
	class := func(operator corev1.ScopeSelectorOperator, values ...string) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: operator, Values: values}
	}
	bestEffort := corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopeBestEffort, Operator: corev1.ScopeSelectorOpExists}
	const ours = "system-cluster-critical"
	cases := map[string]struct {
		spec corev1.ResourceQuotaSpec
		want bool
	}{
		"no scope":                  {spec: corev1.ResourceQuotaSpec{}},
		"another scope":             {spec: corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotTerminating}}},
		"any class, as a scope":     {spec: corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopePriorityClass}}, want: true},
		"an empty selector":         {spec: selects()},
		"ours among others":         {spec: selects(class(corev1.ScopeSelectorOpIn, "other", ours)), want: true},
		"other classes":             {spec: selects(class(corev1.ScopeSelectorOpIn, "other"))},
		"all but ours":              {spec: selects(class(corev1.ScopeSelectorOpNotIn, ours))},
		"all but another":           {spec: selects(class(corev1.ScopeSelectorOpNotIn, "other")), want: true},
		"any class":                 {spec: selects(class(corev1.ScopeSelectorOpExists)), want: true},
		"pods without a class":      {spec: selects(class(corev1.ScopeSelectorOpDoesNotExist))},
		"another scope's selector":  {spec: selects(bestEffort)},
		"one of two scopes matches": {spec: selects(bestEffort, class(corev1.ScopeSelectorOpIn, ours)), want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := withClass(ours).CoveredBy(&corev1.ResourceQuota{Spec: tc.spec}); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
