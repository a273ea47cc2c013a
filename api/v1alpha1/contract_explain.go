// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ParameterExplain is a query parameter of a metric's path in custom.metrics.k8s.io
	// and external.metrics.k8s.io: with `explain=true` serving returns a
	// MetricExplanation as JSON instead of the values. It needs the same right as
	// reading the values. Other implementations ignore it and return the values.
	ParameterExplain = "explain"
	// KindMetricExplanation is the kind of a MetricExplanation.
	KindMetricExplanation = "MetricExplanation"
)

// MetricExplanation says how the values of a metric are computed. It contains only
// the requested objects, and no credentials.
// +kubebuilder:object:generate=false
type MetricExplanation struct {
	metav1.TypeMeta `json:",inline"`
	// Origin is what defines the metric: the path of a rule or of a route in the
	// MetricsBackend, or an object as KIND NAMESPACE/NAME.
	Origin string `json:"origin"`
	// Remarks name what defines the metric, too, but does not count.
	Remarks []string `json:"remarks,omitempty"`
	// Source is a name in spec.sources.
	Source string `json:"source"`
	// Query is the query as the rule or object makes it, or the path below the version of the
	// API that another implementation is asked for. For the times of samples more is sent.
	Query string `json:"query"`
	// Interval is the time between two evaluations, and so the maximum age of values.
	Interval metav1.Duration `json:"interval"`
	// ObjectLabel is the label of the series that names the described object. If the
	// values describe one fixed object, Object is set instead; if none, neither is.
	ObjectLabel string `json:"objectLabel,omitempty"`
	Object      string `json:"object,omitempty"`
	// Duplicates is what happens to several series of one object.
	Duplicates DuplicatesPolicy `json:"duplicatesPolicy,omitempty"`
	// NaNAsZero means that NaN counts as 0.
	NaNAsZero bool `json:"nanAsZero,omitempty"`

	// Failure is why the source returned no result.
	Failure *ExplainedFailure `json:"failure,omitempty"`
	// Evaluated is the time of the result, Window the longest range in the query.
	Evaluated metav1.MicroTime `json:"evaluated,omitzero"`
	Window    metav1.Duration  `json:"window,omitzero"`
	// Series are the series of the requested objects, at most MaxExplained of
	// SeriesCount. OtherSeries is the number of series of other objects.
	Series      []ExplainedSeries `json:"series,omitempty"`
	SeriesCount int               `json:"seriesCount"`
	OtherSeries int               `json:"otherSeries,omitempty"`
	// Warnings are those of the source, unchanged.
	Warnings []string `json:"warnings,omitempty"`

	// Fallback means that the source fails and the values come from spec.fallback.
	Fallback bool `json:"fallback,omitempty"`
	// Values are what clients get, at most MaxExplained of ValueCount.
	Values     []ExplainedValue `json:"values,omitempty"`
	ValueCount int              `json:"valueCount"`
	// Omitted are series without a value.
	Omitted []ExplainedOmission `json:"omitted,omitempty"`
}

// MaxExplained is the maximum number of series, and of values, in a MetricExplanation.
const MaxExplained = 100

// ExplainedFailure is why a source returned no result.
// +kubebuilder:object:generate=false
type ExplainedFailure struct {
	// Reason is a word in CamelCase, Message the source's own error message.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// ExplainedSeries is a series as the source returned it.
// +kubebuilder:object:generate=false
type ExplainedSeries struct {
	Labels map[string]string `json:"labels,omitempty"`
	// Value is a number, NaN, +Inf or -Inf, as text.
	Value string           `json:"value"`
	Time  metav1.MicroTime `json:"time"`
}

// ExplainedValue is a value as clients get it.
// +kubebuilder:object:generate=false
type ExplainedValue struct {
	// Object is the described object. Values of an external metric have Labels instead.
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
	// Reason is a word in CamelCase, Message says what to do.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}
