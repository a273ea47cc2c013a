// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CustomMetric declares a metric of objects in its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=metrics
type CustomMetric struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              CustomMetricSpec `json:"spec"`
	// +optional
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

// ExternalMetric declares a metric that describes no object, for its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=metrics
type ExternalMetric struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ExternalMetricSpec `json:"spec"`
	// +optional
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
	// Name of the metric. Default: metadata.name.
	// +optional
	MetricName string `json:"metricName,omitempty"`
	// Source in the MetricsBackend's spec.sources. Default: the first.
	// +optional
	Source string `json:"source,omitempty"`
	// Query in the source's language. It is confined to series of this namespace,
	// unless the administrator allows otherwise (spec.sources[].prometheus.tenancy).
	Query string `json:"query"`
	// Time between two evaluations. Default: the source's.
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`
	// What stands in for the value while the source fails. Default: nothing.
	// +optional
	Fallback *MetricFallback `json:"fallback,omitempty"`
}

// CustomMetricSpec is a query and the objects that its values describe.
type CustomMetricSpec struct {
	DeclaredMetricSpec `json:",inline"`
	// What the values describe.
	Describes DescribedObjects `json:"describes"`
	// What becomes of several series of one object. Default: Reject.
	// +optional
	Duplicates DuplicatesPolicy `json:"duplicates,omitempty"`
}

// DescribedObjects are objects in the metric's namespace: one, or those that a label names.
type DescribedObjects struct {
	// Resource, plural, such as pods or ingresses.
	Resource string `json:"resource"`
	// Group of the resource. Default: core.
	// +optional
	Group string `json:"group,omitempty"`
	// Name of the one object.
	// +optional
	Name string `json:"name,omitempty"`
	// Label of the series that holds the object's name.
	// +optional
	NameLabel string `json:"nameLabel,omitempty"`
}

// ExternalMetricSpec is a query and what its values are labelled with.
type ExternalMetricSpec struct {
	DeclaredMetricSpec `json:",inline"`
	// Labels that are added to each value; they win over those of the series.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
}

// MetricFallback is one of value and lastValue.
type MetricFallback struct {
	// Failed evaluations in a row after which it is used. Default: 3.
	// +optional
	AfterFailures *int32 `json:"afterFailures,omitempty"`
	// +optional
	Value *resource.Quantity `json:"value,omitempty"`
	// +optional
	LastValue *LastValueFallback `json:"lastValue,omitempty"`
}

// LastValueFallback is the last value that the source gave.
type LastValueFallback struct {
	// Age at which it is no longer used. Default: 10m.
	// +optional
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
}

// DeclaredMetricStatus is how the serving pods see the metric.
type DeclaredMetricStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Ready: the newest evaluation gave values. Fallback: it is in use.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// The value, or how many there are. Renewed once a minute at most.
	// +optional
	Value string `json:"value,omitempty"`
	// Time of that value.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// Number of values.
	// +optional
	Values int32 `json:"values,omitempty"`
}
