// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/utils/ptr"

// Section is what the sections of all API groups have in common.
// +kubebuilder:object:generate=false
type Section struct {
	// Field is its name in the spec.
	Field string
	// Set: the spec has it. All that follows is empty otherwise.
	Set bool

	Versions                []string
	Adoption                AdoptionPolicy
	AdoptDespiteLostMetrics bool
}

// Section returns the section of an API group, or the zero value for a group that has none.
func (s *MetricsBackendSpec) Section(group string) Section {
	switch group {
	case "metrics.k8s.io":
		rm := ptr.Deref(s.ResourceMetrics, ResourceMetricsSpec{})
		return Section{"resourceMetrics", s.ResourceMetrics != nil, texts(rm.Versions), rm.Adoption, false}
	case "custom.metrics.k8s.io":
		cm := ptr.Deref(s.CustomMetrics, CustomMetricsSpec{})
		return Section{"customMetrics", s.CustomMetrics != nil, texts(cm.Versions), cm.Adoption, cm.AdoptDespiteLostMetrics}
	case "external.metrics.k8s.io":
		em := ptr.Deref(s.ExternalMetrics, ExternalMetricsSpec{})
		return Section{"externalMetrics", s.ExternalMetrics != nil, texts(em.Versions), em.Adoption, em.AdoptDespiteLostMetrics}
	}
	return Section{}
}

func texts[T ~string](values []T) []string {
	var all []string
	for _, value := range values {
		all = append(all, string(value))
	}
	return all
}
