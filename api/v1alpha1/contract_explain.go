// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ParameterExplain is a parameter of a metric's own path in custom.metrics.k8s.io
	// and external.metrics.k8s.io: with `explain=true` serving answers a
	// MetricExplanation as JSON instead of the values. Who may read the values may
	// read it, and nobody else; a server that does not know it answers the values.
	ParameterExplain = "explain"
	// KindMetricExplanation is the kind of a MetricExplanation.
	KindMetricExplanation = "MetricExplanation"
)

// MetricExplanation says how the values of a metric come about. It tells of the
// objects that were asked for and no others, and holds no credentials.
// +kubebuilder:object:generate=false
type MetricExplanation struct {
	metav1.TypeMeta `json:",inline"`
	// Origin names what defines the metric: a rule by its path in the MetricsBackend,
	// or an object as KIND NAMESPACE/NAME.
	Origin string `json:"origin"`
	// Source is its name in spec.sources.
	Source string `json:"source"`
	// Query is in the source's language, as it was asked.
	Query string `json:"query"`
	// Interval is the time between two evaluations, which is how old values may be.
	Interval metav1.Duration `json:"interval"`
	// ObjectLabel is the label of the series that names the described object, or
	// Object is that object; both are empty where values describe none.
	ObjectLabel string `json:"objectLabel,omitempty"`
	Object      string `json:"object,omitempty"`
	// Duplicates says what becomes of several series of one object.
	Duplicates DuplicatesPolicy `json:"duplicates,omitempty"`
	// NaNAsZero: what is no number counts as 0.
	NaNAsZero bool `json:"nanAsZero,omitempty"`

	// Failure is why the source gave no answer.
	Failure *ExplainedFailure `json:"failure,omitempty"`
	// Evaluated is the instant of the answer, and Window the longest range over which
	// the query looks back.
	Evaluated metav1.MicroTime `json:"evaluated,omitzero"`
	Window    metav1.Duration  `json:"window,omitzero"`
	// Series of the answer that concern the request, at most MaxExplained of
	// SeriesCount. OtherSeries counts those of other objects.
	Series      []ExplainedSeries `json:"series,omitempty"`
	SeriesCount int               `json:"seriesCount"`
	OtherSeries int               `json:"otherSeries,omitempty"`
	// Warnings of the source, in its own words.
	Warnings []string `json:"warnings,omitempty"`

	// Fallback: these values stand in for those of a source that fails.
	Fallback bool `json:"fallback,omitempty"`
	// Values that clients get, at most MaxExplained of ValueCount.
	Values     []ExplainedValue `json:"values,omitempty"`
	ValueCount int              `json:"valueCount"`
	// Omitted are series that give no value.
	Omitted []ExplainedOmission `json:"omitted,omitempty"`
}

// MaxExplained is how many series and values a MetricExplanation holds at most.
const MaxExplained = 100

// ExplainedFailure is why a source gave no answer.
// +kubebuilder:object:generate=false
type ExplainedFailure struct {
	// Reason is a word in CamelCase, and Message in the source's own words.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// ExplainedSeries is a series as the source gave it.
// +kubebuilder:object:generate=false
type ExplainedSeries struct {
	Labels map[string]string `json:"labels,omitempty"`
	// Value is a number, or NaN, +Inf or -Inf, as text.
	Value string           `json:"value"`
	Time  metav1.MicroTime `json:"time"`
}

// ExplainedValue is a value as clients get it.
// +kubebuilder:object:generate=false
type ExplainedValue struct {
	// Object that it describes, or Labels that tell it from others of an external metric.
	Object string            `json:"object,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Value is a quantity.
	Value string      `json:"value"`
	Time  metav1.Time `json:"time"`
}

// ExplainedOmission is a series or an object without a value.
// +kubebuilder:object:generate=false
type ExplainedOmission struct {
	Object string            `json:"object,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Reason is a word in CamelCase, and Message says what to do.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}
