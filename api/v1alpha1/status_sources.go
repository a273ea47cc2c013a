// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RuleState is the severity of a problem of a rule.
// +kubebuilder:validation:Enum=Invalid;Failing;Warning
type RuleState string

const (
	// RuleInvalid means that the rule cannot be compiled; only a change of the spec helps.
	RuleInvalid RuleState = "Invalid"
	// RuleFailing means that the rule produces no metrics, which may change by itself.
	RuleFailing RuleState = "Failing"
	// RuleWarning means that the rule works, but perhaps not as intended.
	RuleWarning RuleState = "Warning"
)

// Severity orders states, most severe first, to choose those that are reported.
func (s RuleState) Severity() int {
	switch s {
	case RuleInvalid:
		return 0
	case RuleWarning:
		return 2
	}
	return 1
}

// MaxRuleStatuses limits the length of status.rules.
const MaxRuleStatuses = 50

// SourceStatus is the state of one of spec.sources in the serving pods.
type SourceStatus struct {
	// Name of the source in spec.sources.
	// +required
	Name string `json:"name"`
	// Whether the source answers the queries of every serving pod that uses it. A healthy
	// source is reported as failing after 45 seconds of failures.
	// +required
	Healthy bool `json:"healthy"`
	// Kind of the last failure, as in docs/reference/conditions.md; NotYetReported before the first
	// response.
	// +optional
	Reason string `json:"reason,omitempty"`
	// The source's own error message, and the number of serving pods that have it unless
	// all do. For the same reason, another message is reported after 5 minutes.
	// +optional
	Message string `json:"message,omitempty"`
	// When healthy last changed.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// Reasons of a RuleStatus for metrics that are left out.
const (
	// ReasonInvalidName means that name yields no metric name, or one that the API
	// does not allow.
	ReasonInvalidName = "InvalidName"
	// ReasonOmittedFromDiscovery means that metrics can be read, but discovery does not list them.
	ReasonOmittedFromDiscovery = "OmittedFromDiscovery"
)

// RuleStatus is a problem of a rule. A rule may have several.
type RuleStatus struct {
	// Path of the rule in the MetricsBackend, such as spec.customMetrics.rules[3].
	// +required
	Path string `json:"path"`
	// Invalid: the rule cannot be compiled, and defines no metric until it is changed.
	// Failing: it defines no metric for now. Warning: it works, but perhaps not as
	// intended.
	// +required
	State RuleState `json:"state"`
	// Kind of the problem, as one word in CamelCase.
	// +required
	Reason string `json:"reason"`
	// The problem and what to do, and the number of serving pods that report it unless all
	// do.
	// +optional
	Message string `json:"message,omitempty"`
}
