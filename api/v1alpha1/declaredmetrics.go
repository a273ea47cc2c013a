// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxQueryLength is the most characters of a query, or of a query's template, as the
// schema has it.
const MaxQueryLength = 16384

// CustomMetric declares a metric of objects in its namespace, which
// custom.metrics.k8s.io then serves. It comes before the rules of the MetricsBackend
// that make the same metric of the same resource.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=cmet,categories=metrics
// +kubebuilder:printcolumn:name="Metric",type=string,JSONPath=`.spec.metricName`,description="Name of the metric, where it is not the object's"
// +kubebuilder:printcolumn:name="Describes",type=string,JSONPath=`.spec.describes.resource`,description="Resource of the objects that the values describe"
// +kubebuilder:printcolumn:name="Value",type=string,JSONPath=`.status.value`,description="Last value, or how many there are"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the newest evaluation gave values"
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.source`,description="Source of the metric, where it is not the first"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What is wrong, in the source's own words"
type CustomMetric struct {
	metav1.TypeMeta `json:",inline"`

	// Standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The metric's query, and which objects its values describe.
	// +required
	Spec CustomMetricSpec `json:"spec"`

	// How the serving pods see the metric. Written when it changes, and at most once
	// a minute for a new value.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status DeclaredMetricStatus `json:"status,omitempty"`
}

// CustomMetricList is a list of CustomMetrics.
//
// +kubebuilder:object:root=true
type CustomMetricList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CustomMetric `json:"items"`
}

// ExternalMetric declares a metric that describes no object, which
// external.metrics.k8s.io then serves in its namespace. It comes before the rules of
// the MetricsBackend that make the same metric.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=emet,categories=metrics
// +kubebuilder:printcolumn:name="Metric",type=string,JSONPath=`.spec.metricName`,description="Name of the metric, where it is not the object's"
// +kubebuilder:printcolumn:name="Value",type=string,JSONPath=`.status.value`,description="Last value, or how many there are"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the newest evaluation gave values"
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.source`,description="Source of the metric, where it is not the first"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What is wrong, in the source's own words"
type ExternalMetric struct {
	metav1.TypeMeta `json:",inline"`

	// Standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The metric's query, and what its values are labelled with.
	// +required
	Spec ExternalMetricSpec `json:"spec"`

	// How the serving pods see the metric. Written when it changes, and at most once
	// a minute for a new value.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status DeclaredMetricStatus `json:"status,omitempty"`
}

// ExternalMetricList is a list of ExternalMetrics.
//
// +kubebuilder:object:root=true
type ExternalMetricList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ExternalMetric `json:"items"`
}

// DeclaredMetricSpec is what both kinds of declared metrics have.
type DeclaredMetricSpec struct {
	// Name of the metric, as clients and autoscalers ask for it. Without '%' and '?',
	// and neither '.' nor '..'. The name of an external metric may hold slashes, which
	// clients write as `\|` in a path. Default: metadata.name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[^%?\x00-\x20\x7f]+$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['.', '..'])",message="metricName must not be '.' or '..', which no path can hold: choose another name"
	MetricName string `json:"metricName,omitempty"`

	// Source: a name in the MetricsBackend's spec.sources. Default: the first of them.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Source string `json:"source,omitempty"`

	// Query in the source's language, such as PromQL. It sees series of this
	// namespace only, unless the administrator allows otherwise
	// (spec.sources[].prometheus.tenancy).
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Query string `json:"query"`

	// Time between two evaluations, for all clients together. A duration from 1s to
	// 1h. Default: the source's.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="interval must be between 1s and 1h"
	Interval *metav1.Duration `json:"interval,omitempty"`

	// What stands in for the value while the source fails. Default: nothing; clients
	// get an error, upon which autoscalers do not scale down.
	// +optional
	Fallback *MetricFallback `json:"fallback,omitempty"`
}

// CustomMetricSpec is a query and the objects that its values describe.
//
// +kubebuilder:validation:XValidation:rule="!has(self.metricName) || !self.metricName.contains('/')",message="the name of a custom metric must not hold a slash, since it is one part of a path: choose another metricName"
type CustomMetricSpec struct {
	DeclaredMetricSpec `json:",inline"`

	// What the values describe.
	// +required
	Describes DescribedObjects `json:"describes"`

	// What becomes of several series of one object: Reject (it has no value, and the
	// status says so), Sum, Average, Minimum or Maximum. Default: Reject.
	// +optional
	// +kubebuilder:default=Reject
	// +kubebuilder:validation:Enum=Reject;Sum;Average;Minimum;Maximum
	Duplicates DuplicatesPolicy `json:"duplicates,omitempty"`
}

// DescribedObjects are objects in the metric's namespace: one, or those that a label names.
//
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.nameLabel)",message="describes needs name (of the one object) or nameLabel (the label that holds the objects' names), and not both"
type DescribedObjects struct {
	// Resource, plural, such as pods or ingresses. Its objects must have a namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Resource string `json:"resource"`

	// Group of the resource, such as networking.k8s.io. Default: core.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`
	Group string `json:"group,omitempty"`

	// Name of the one object.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// Label of the series that holds the object's name, such as pod.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NameLabel string `json:"nameLabel,omitempty"`
}

// ExternalMetricSpec is a query and what its values are labelled with.
//
// +kubebuilder:validation:XValidation:rule="!has(self.metricName) || !self.metricName.contains('\\\\|')",message="metricName has the escape of a slash, which only clients write: write the slash itself"
type ExternalMetricSpec struct {
	DeclaredMetricSpec `json:",inline"`

	// Labels that are added to each value, for clients' selectors; they win over
	// those of the series. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=50
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 63)",message="labels must be such as Kubernetes' selectors can name: values of at most 63 characters, keys of at most 63 and optionally the prefix of a domain"
	Labels map[string]string `json:"labels,omitempty"`
}

// MetricFallback is one of value and lastValue. While it stands in, the condition Fallback
// and a Warning header of the answers say so. Last values keep their time; a fixed one is no
// measurement, and has the time at which the failure was found.
//
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.lastValue)",message="fallback needs value (a fixed one) or lastValue (the last that the source gave), and not both"
type MetricFallback struct {
	// Failed evaluations in a row after which it is used; until then clients get the
	// error. From 1 to 100. Default: 3.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	AfterFailures *int32 `json:"afterFailures,omitempty"`

	// The pattern of quantities lets through what no client can decode (1e1.5), so that one
	// object would keep all of them from being listed, and what takes hours to decode
	// (1.00000000000000000001e2000000000). This one does not.

	// A fixed value, such as `10` or `500m`. Its time is that of the failure.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^[+-]?([0-9]{1,19}(\.[0-9]{0,18})?|\.[0-9]{1,18})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$`
	Value *resource.Quantity `json:"value,omitempty"`

	// The last values that the source gave, with their times; `lastValue: {}` is enough.
	// +optional
	LastValue *LastValueFallback `json:"lastValue,omitempty"`
}

// LastValueFallback is the last value that the source gave.
type LastValueFallback struct {
	// Age at which it is no longer used. A duration from 1s to 24h. Default: 10m.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="fallback.lastValue.maxAge must be between 1s and 24h"
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
}

// DeclaredMetricStatus is how the serving pods see the metric.
type DeclaredMetricStatus struct {
	// Generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Ready: the newest evaluation gave values; where not, its message has the error
	// in the source's own words. Fallback, present while true: others stand in for
	// them. Reasons are listed in docs/conditions.md.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The value where there is one, or how many there are. Renewed once a minute at most.
	// +optional
	Value string `json:"value,omitempty"`

	// Time of that value when it last changed, as the source gave it.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`

	// Number of values.
	// +optional
	Values int32 `json:"values,omitempty"`
}
