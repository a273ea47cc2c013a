// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RuleState is how bad it is what is wrong with a rule.
// +kubebuilder:validation:Enum=Invalid;Failing;Warning
type RuleState string

const (
	// RuleInvalid is a rule that cannot be compiled: only a change of the spec mends it.
	RuleInvalid RuleState = "Invalid"
	// RuleFailing is a rule that makes no metrics, which may pass by itself.
	RuleFailing RuleState = "Failing"
	// RuleWarning is a rule that works, perhaps not as it was meant.
	RuleWarning RuleState = "Warning"
)

// Severity orders states, the worst first: where not all are told, these are.
func (s RuleState) Severity() int {
	switch s {
	case RuleInvalid:
		return 0
	case RuleWarning:
		return 2
	}
	return 1
}

// MaxRuleStatuses bounds status.rules.
const MaxRuleStatuses = 50

// SourceStatus is how one of spec.sources does, as the serving pods see it.
type SourceStatus struct {
	// Name of the source in spec.sources.
	Name string `json:"name"`
	// Whether the newest answer was good in every serving pod that has asked. A
	// source that was healthy is shown as failing after 45 seconds.
	Healthy bool `json:"healthy"`
	// Kind of the newest failure, as in docs/conditions.md; NotYetReported before the
	// first answer.
	// +optional
	Reason string `json:"reason,omitempty"`
	// The newest failure in the source's own words, and how many serving pods see it
	// if not all do. Other words for the same reason are taken up after 5 minutes.
	// +optional
	Message string `json:"message,omitempty"`
	// Since when it is healthy, or not.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// RuleStatus is what is wrong with a rule. A rule may have several.
type RuleStatus struct {
	// Path of the rule in the MetricsBackend, such as spec.customMetrics.rules[3].
	Path string `json:"path"`
	// Invalid: the rule cannot be compiled, and makes no metric until it is changed.
	// Failing: it makes none for now. Warning: it works, perhaps not as it was meant.
	State RuleState `json:"state"`
	// What is wrong, in one word.
	Reason string `json:"reason"`
	// What is wrong and what to do; and how many serving pods say so if not all do.
	// +optional
	Message string `json:"message,omitempty"`
}
