// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// MetricRoute says which implementation answers some requests for metrics.
//
// +kubebuilder:validation:XValidation:rule="has(self.source) != has(self.own)",message="each of routes needs either source or own: {}"
type MetricRoute struct {
	// Source that answers: the name of one of spec.sources with metricsAPI of this API group.
	// Either source or own is required. Default: none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Source string `json:"source,omitempty"`

	// The rules and declared metrics of this backend answer: `own: {}`. The route matches only
	// metrics that they define. Either source or own is required. Default: none.
	// +optional
	Own *OwnMetrics `json:"own,omitempty"`

	// Which requests the route matches. All fields that are set must match. Default: all
	// requests.
	// +optional
	Match RouteMatch `json:"match,omitzero"`
}

// OwnMetrics are the metrics that rules and declared metrics of a MetricsBackend define.
type OwnMetrics struct{}

// RouteMatch selects requests for metrics.
//
// +kubebuilder:validation:XValidation:rule="!has(self.metrics) || !has(self.metricRegexp)",message="match by metrics or by metricRegexp, not both: use two routes"
type RouteMatch struct {
	// Names of metrics; those of external metrics in any case. At most 500. Default: any.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MaxLength=253
	Metrics []string `json:"metrics,omitempty"`

	// Regular expression (RE2) that must match the whole name of the metric; that of an
	// external metric in any case. Default: any.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	MetricRegexp string `json:"metricRegexp,omitempty"`

	// Namespaces of requests. Default: any, and requests without a namespace.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespaces []string `json:"namespaces,omitempty"`

	// What the selector of the metric must require (metric.selector of an autoscaler).
	// Default: any selector, and none.
	// +optional
	Selector *RouteSelector `json:"selector,omitempty"`
}

// RouteSelector selects requests by the selectors that they have.
type RouteSelector struct {
	// Label that the selector must require, such as scaledobject.keda.sh/name, which all
	// requests for KEDA's metrics have.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// Values of the label, to which the selector must restrict it with = or in. Default: any
	// requirement for the label.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=63
	Values []string `json:"values,omitempty"`
}
