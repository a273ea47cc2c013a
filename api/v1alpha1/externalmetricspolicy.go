// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ExternalMetricsPolicy says which external metrics may be read, from where and by
// whom (External Metrics API proposal). Policies that apply combine by AND; where
// none applies, a metric may be read. A denied request, or one whose selector is no
// subset of the policy's, gets 403 with the policy's name; a watch that a change
// denies ends.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=emp,categories=metrics
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether all rules can be read; those that cannot deny"
// +kubebuilder:printcolumn:name="Namespaces",type=string,JSONPath=`.spec.namespaces`,description="Namespaces of the request; all where empty"
// +kubebuilder:printcolumn:name="Subjects",type=string,JSONPath=`.spec.subjects[*].name`,description="Who asks; everybody where empty"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="Which rules cannot be read, and why"
type ExternalMetricsPolicy struct {
	metav1.TypeMeta `json:",inline"`

	// Standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// To whom the policy applies, and its rules.
	// +required
	Spec ExternalMetricsPolicySpec `json:"spec"`

	// Whether the rules can be read.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status ExternalMetricsPolicyStatus `json:"status,omitempty"`
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
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespaces []string `json:"namespaces,omitempty"`

	// Who asks: the policy applies to any of them. A HorizontalPodAutoscaler's
	// queries are the HPA controller's: bind those by namespace. Default: everybody.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Subjects []PolicySubject `json:"subjects,omitempty"`

	// The first whose `metric` matches the metric's name decides; where none does, the
	// policy does not forbid. A rule that cannot be read denies every metric that gets
	// to it, and the condition Ready says so.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Rules []ExternalMetricsPolicyRule `json:"rules"`
}

// PolicySubjectKind is what a PolicySubject names.
// +kubebuilder:validation:Enum=User;Group
type PolicySubjectKind string

const (
	// PolicySubjectUser is a user's name.
	PolicySubjectUser PolicySubjectKind = "User"
	// PolicySubjectGroup is a group's name.
	PolicySubjectGroup PolicySubjectKind = "Group"
)

// PolicySubject is a user or a group.
type PolicySubject struct {
	// User or Group. A service account is the User `system:serviceaccount:NAMESPACE:NAME`.
	// +required
	Kind PolicySubjectKind `json:"kind"`

	// Name of the user or group, as kube-apiserver authenticates it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name"`
}

// ExternalMetricsPolicyRule is a regexp with a selector or a denial.
//
// +kubebuilder:validation:XValidation:rule="has(self.selector) != (has(self.deny) && self.deny)",message="each rule needs selector (what may be read; `selector: {}` allows everything) or deny: true, and not both"
type ExternalMetricsPolicyRule struct {
	// Regular expression (RE2) that the whole name of the metric must match, as if
	// between `^` and `$`.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="'x'.matches(self) in [true, false]",message="metric must be a regular expression in RE2's syntax"
	Metric string `json:"metric"`

	// What a query may select: it must ask for a subset of this. `{}` allows everything.
	// One that cannot be read denies.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// Denies the metric. Default: false.
	// +optional
	Deny bool `json:"deny,omitempty"`
}

// ExternalMetricsPolicyStatus is whether a policy can be read.
type ExternalMetricsPolicyStatus struct {
	// Generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Ready: all rules can be read. A rule that cannot be read denies every metric
	// that gets to it. Reasons are listed in docs/conditions.md.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
