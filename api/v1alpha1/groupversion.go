// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the API types of metricsbackend.io/v1alpha1, their conditions
// and reasons, and the types that the operator and the serving component exchange. It
// imports no other package of this module.
//
// +kubebuilder:object:generate=true
// +groupName=metricsbackend.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of this package's types.
const GroupName = "metricsbackend.io"

var (
	// GroupVersion is the group and version of this package's types.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers this package's types with a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&MetricsBackend{}, &MetricsBackendList{},
		&CustomMetric{}, &CustomMetricList{},
		&ExternalMetric{}, &ExternalMetricList{},
		&ExternalMetricsPolicy{}, &ExternalMetricsPolicyList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
