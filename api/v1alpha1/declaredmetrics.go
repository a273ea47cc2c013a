// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxQueryLength is the maximum length of a rule's queries in characters, as in the schema.
const MaxQueryLength = 16384

// CustomMetric declares a metric of objects in its namespace, which is then served in
// custom.metrics.k8s.io. It takes precedence over rules of the MetricsBackend for the
// same metric of the same resource. At most 1000 of a namespace are used, the oldest ones,
// and at most 5000 of the cluster, but at least one of each namespace: then fewer of the
// namespaces that have most.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=cmet,categories=metrics
// +kubebuilder:printcolumn:name="Metric",type=string,JSONPath=`.spec.metricName`,description="Name of the metric, if it differs from the object's"
// +kubebuilder:printcolumn:name="Object",type=string,JSONPath=`.spec.describedObject.resource`,description="Resource of the objects that the values describe"
// +kubebuilder:printcolumn:name="Value",type=string,JSONPath=`.status.value`,description="Last value, or the number of values"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the last evaluation returned values"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready, or not"
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.source`,description="Source of the metric, if it is not the first Prometheus"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="The problem, with the source's own error message"
type CustomMetric struct {
	metav1.TypeMeta `json:",inline"`

	// Standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The query of the metric, and the objects that its values describe.
	// +required
	Spec CustomMetricSpec `json:"spec"`

	// State of the metric in the serving pods. Updated when it changes; for a new value,
	// at most once a minute.
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

// ExternalMetric declares a metric that describes no object, which is then served in
// its namespace in external.metrics.k8s.io. It takes precedence over rules of the
// MetricsBackend for the same metric. At most 1000 of a namespace are used, the oldest ones,
// and at most 5000 of the cluster, but at least one of each namespace: then fewer of the
// namespaces that have most.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=emet,categories=metrics
// +kubebuilder:printcolumn:name="Metric",type=string,JSONPath=`.spec.metricName`,description="Name of the metric, if it differs from the object's"
// +kubebuilder:printcolumn:name="Value",type=string,JSONPath=`.status.value`,description="Last value, or the number of values"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the last evaluation returned values"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready, or not"
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.source`,description="Source of the metric, if it is not the first Prometheus"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="The problem, with the source's own error message"
type ExternalMetric struct {
	metav1.TypeMeta `json:",inline"`

	// Standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The query of the metric, and labels for its values.
	// +required
	Spec ExternalMetricSpec `json:"spec"`

	// State of the metric in the serving pods. Updated when it changes; for a new value,
	// at most once a minute.
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

// DeclaredMetricSpec has the fields common to CustomMetric and ExternalMetric.
type DeclaredMetricSpec struct {
	// Name of the metric in requests of clients and autoscalers. It must not contain
	// '%' or '?', and must not be '.' or '..'. The name of an external metric may
	// contain slashes, which clients write as `\|` in a path. Default: metadata.name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[^%?\x00-\x20\x7f]+$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['.', '..'])",message="metricName must not be '.' or '..', which no path can hold: choose another name"
	MetricName string `json:"metricName,omitempty"`

	// Source that is queried: a name in the MetricsBackend's spec.sources. Default: the
	// first Prometheus there.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Source string `json:"source,omitempty"`

	// The rules of both specs limit it to MaxDeclaredSize, and say what to do, which the error
	// of maxLength does not.

	// Query in the source's language, such as PromQL. It selects only series of this
	// namespace, unless the MetricsBackend allows more
	// (spec.sources[].prometheus.tenancy). At most 2048 bytes, with the labels of an
	// ExternalMetric. A longer query needs a rule in the MetricsBackend, or a recording
	// rule of the source.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Query string `json:"query"`

	// Time between two evaluations of the query; all clients share the result. A
	// duration such as `30s`, from 1s to 1h. Default: the source's interval.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="interval must be between 1s and 1h"
	Interval *metav1.Duration `json:"interval,omitempty"`

	// What happens if one of several series has no value: NaN, an infinity, or a number
	// beyond ±9.2e15. Reject: an ExternalMetric has no value, nor has an object whose series
	// are combined (duplicatesPolicy), and errors name the series. Omit: the other series are
	// served, and autoscalers scale by these alone. Default: Reject.
	// +optional
	// +kubebuilder:validation:Enum=Reject;Omit
	InvalidValuesPolicy InvalidValuesPolicy `json:"invalidValuesPolicy,omitempty"`

	// Value to serve while the source fails. Default: none; clients get an error, and
	// autoscalers do not scale down.
	// +optional
	Fallback *MetricFallback `json:"fallback,omitempty"`
}

// CustomMetricSpec has a query and the objects that its values describe.
//
// +kubebuilder:validation:XValidation:rule="size(bytes(self.query)) <= 2048",message="query must have at most 2048 bytes: ask an administrator for a rule in the MetricsBackend, or record the result at the source (a recording rule) and query that"
// +kubebuilder:validation:XValidation:rule="!has(self.metricName) || !self.metricName.contains('/')",message="the name of a custom metric must not hold a slash, since it is one part of a path: choose another metricName"
type CustomMetricSpec struct {
	DeclaredMetricSpec `json:",inline"`

	// Objects that the values describe: one by name, or those that a label of the series
	// names. Unlike describedObject of an autoscaler it has the plural resource and its group.
	// +required
	DescribedObject DescribedObjects `json:"describedObject"`

	// What happens if one object has several series. Reject: the object has no value,
	// and the status says so. Sum, Average, Minimum, Maximum: their values are combined
	// into one. Default: Reject.
	// +optional
	// +kubebuilder:default=Reject
	// +kubebuilder:validation:Enum=Reject;Sum;Average;Minimum;Maximum
	DuplicatesPolicy DuplicatesPolicy `json:"duplicatesPolicy,omitempty"`
}

// DescribedObjects are objects in the metric's namespace: a single one, or those named
// by a label of the series.
//
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.nameLabel)",message="describedObject needs name (of the one object) or nameLabel (the label that holds the objects' names), and not both"
type DescribedObjects struct {
	// Resource of the objects in the plural, such as pods or ingresses. It must be
	// namespaced, or namespaces with the name of the metric's own.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Resource string `json:"resource"`

	// API group of the resource, such as networking.k8s.io. Default: the core group.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`
	Group string `json:"group,omitempty"`

	// Name of the single object that all series describe. Either name or nameLabel is
	// required. Default: none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// Label of the series whose value is the object's name, such as pod. Either name or
	// nameLabel is required. Default: none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NameLabel string `json:"nameLabel,omitempty"`
}

// ExternalMetricSpec has a query and labels for its values.
//
// +kubebuilder:validation:XValidation:rule="size(bytes(self.query)) + (has(self.labels) ? self.labels.map(k, size(k) + size(self.labels[k])).sum() : 0) <= 2048",message="query and labels must have at most 2048 bytes: ask an administrator for a rule in the MetricsBackend, or record the result at the source (a recording rule) and query that"
// +kubebuilder:validation:XValidation:rule="!has(self.metricName) || !self.metricName.contains('\\\\|')",message="metricName has the escape of a slash, which only clients write: write the slash itself"
type ExternalMetricSpec struct {
	DeclaredMetricSpec `json:",inline"`

	// Labels added to each value, for selectors of clients. They override labels of the
	// series. At most 50. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=50
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 63)",message="labels must be such as Kubernetes' selectors can name: values of at most 63 characters, keys of at most 63 and optionally the prefix of a domain"
	Labels map[string]string `json:"labels,omitempty"`
}

// MetricFallback is either a fixed value or the last value. While it is used, the
// condition Fallback and a Warning header of responses say so. Last values keep their
// timestamp; a fixed value has the time at which the failure was detected.
//
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.lastValue)",message="fallback needs value (a fixed one) or lastValue (the last that the source gave), and not both"
type MetricFallback struct {
	// Number of consecutive failed evaluations after which the fallback is used; until
	// then clients get the error. From 1 to 100. Default: 3.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	AfterFailures *int32 `json:"afterFailures,omitempty"`

	// The usual pattern of quantities admits values that no client can decode (1e1.5), so
	// that a list with one such object would fail, and values that take hours to decode
	// (1.00000000000000000001e2000000000). This pattern does not.

	// A fixed value, as a quantity such as `10` or `500m`. Its timestamp is the time of
	// the failure. Either value or lastValue is required. Default: none.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^[+-]?([0-9]{1,19}(\.[0-9]{0,18})?|\.[0-9]{1,18})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$`
	Value *resource.Quantity `json:"value,omitempty"`

	// The last values from the source, with their timestamps; `lastValue: {}` is enough.
	// Either value or lastValue is required. Default: none.
	// +optional
	LastValue *LastValueFallback `json:"lastValue,omitempty"`
}

// LastValueFallback is the last value from the source.
type LastValueFallback struct {
	// Maximum age of the last value; when it is older, clients get the error. A
	// duration from 1s to 24h. Default: 10m.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="fallback.lastValue.maxAge must be between 1s and 24h"
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
}

// DeclaredMetricStatus is the state of the metric in the serving pods.
type DeclaredMetricStatus struct {
	// Generation of the spec that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Ready: the last evaluation returned values; if not, the message has the source's
	// own error. Fallback, present only while True: the values come from spec.fallback.
	// docs/reference/conditions.md lists the reasons.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The value if there is exactly one, otherwise the number of values. Updated at most
	// once a minute.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Value string `json:"value,omitempty"`

	// Timestamp of that value from the source, as of its last change.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`

	// Number of values.
	// +optional
	Values int32 `json:"values,omitempty"`
}
