// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ExternalMetricsPolicy says which external metrics may be read, from where and by
// whom (External Metrics API proposal). Policies that apply combine by AND; where
// none applies, a metric may be read.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=metrics
type ExternalMetricsPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ExternalMetricsPolicySpec `json:"spec"`
}

// ExternalMetricsPolicyList is a list of ExternalMetricsPolicies.
//
// +kubebuilder:object:root=true
type ExternalMetricsPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ExternalMetricsPolicy `json:"items"`
}

// ExternalMetricsPolicySpec is to whom a policy applies, and its rules.
type ExternalMetricsPolicySpec struct {
	// Namespaces of the request. Default: all.
	// +optional
	// +listType=set
	Namespaces []string `json:"namespaces,omitempty"`
	// Who asks. A HorizontalPodAutoscaler's queries are the controller's: bind those
	// by namespace. Default: everybody.
	// +optional
	// +listType=atomic
	Subjects []PolicySubject `json:"subjects,omitempty"`
	// The first that matches a metric's name decides; where none does, the policy
	// does not forbid.
	// +listType=atomic
	Rules []ExternalMetricsPolicyRule `json:"rules"`
}

// PolicySubject is a user or a group.
type PolicySubject struct {
	// +kubebuilder:validation:Enum=User;Group
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// ExternalMetricsPolicyRule is a regexp with a selector or a denial.
type ExternalMetricsPolicyRule struct {
	// Regular expression (RE2) that the whole name of the metric must match.
	Metric string `json:"metric"`
	// A query must select a subset of this.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// +optional
	Deny bool `json:"deny,omitempty"`
}
