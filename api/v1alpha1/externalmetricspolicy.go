// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ExternalMetricsPolicy restricts which external metrics can be read, by namespace and
// by user (External Metrics API proposal). If several policies apply, all must allow a
// request; if none applies, it is allowed. A denied request, or one whose selector is
// not a subset of the policy's, gets 403 with the policy's name. Watches end when a
// change denies them.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=emp,categories=metrics
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether all rules are valid; an invalid rule denies"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready, or not"
// +kubebuilder:printcolumn:name="Namespaces",type=string,JSONPath=`.spec.namespaces`,description="Namespaces of the request; empty means all"
// +kubebuilder:printcolumn:name="Subjects",type=string,JSONPath=`.spec.subjects[*].name`,description="Users and groups; empty means everyone"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="Which rules are invalid, and why"
type ExternalMetricsPolicy struct {
	metav1.TypeMeta `json:",inline"`

	// Standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The requests to which the policy applies, and its rules.
	// +required
	Spec ExternalMetricsPolicySpec `json:"spec"`

	// Whether the rules are valid.
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

// ExternalMetricsPolicySpec has the requests to which a policy applies, and its rules.
type ExternalMetricsPolicySpec struct {
	// The policy applies to requests in these namespaces, at most 1000, and to those for
	// all (`namespaces/*`). Default: all namespaces.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespaces []string `json:"namespaces,omitempty"`

	// The policy applies to requests of any of these users and groups, at most 100. All
	// HorizontalPodAutoscalers have the identity of the HPA controller: use namespaces
	// for them. Default: everyone.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Subjects []PolicySubject `json:"subjects,omitempty"`

	// The first rule whose `metric` matches the metric's name decides; if none matches,
	// the policy allows the request. An invalid rule denies every metric that no earlier
	// rule matches, and the condition Ready says so. From 1 to 100 rules.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Rules []ExternalMetricsPolicyRule `json:"rules"`
}

// PolicySubjectKind is the kind of a PolicySubject.
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
	// User or Group. A ServiceAccount is the User `system:serviceaccount:NAMESPACE:NAME`.
	// +required
	Kind PolicySubjectKind `json:"kind"`

	// Name of the user or group, as kube-apiserver authenticates it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name"`
}

// ExternalMetricsPolicyRule allows or denies the metrics whose names match a regular
// expression.
//
// +kubebuilder:validation:XValidation:rule="has(self.selector) != (has(self.deny) && self.deny)",message="each rule needs selector (what may be read; `selector: {}` allows everything) or deny: true, and not both"
type ExternalMetricsPolicyRule struct {
	// Regular expression (RE2 syntax). The rule applies to metrics whose whole name
	// matches, as if the expression were between `^` and `$`. If it matches only without
	// regard to case, the rule denies what it would deny, but allows nothing.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="'x'.matches(self) in [true, false]",message="metric must be a regular expression in RE2's syntax"
	Metric string `json:"metric"`

	// Series that a request may select: its selector must select a subset of them. `{}`
	// allows everything; an invalid selector denies. Either selector or deny is
	// required. Default: none.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// Denies all requests for the metric. Default: false.
	// +optional
	Deny bool `json:"deny,omitempty"`
}

// ExternalMetricsPolicyStatus is the observed state of a policy.
type ExternalMetricsPolicyStatus struct {
	// Generation of the spec that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Ready: all rules are valid. An invalid rule denies every metric that no earlier
	// rule matches. docs/reference/conditions.md lists the reasons.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
