// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CustomMetricsVersion is a version of custom.metrics.k8s.io.
// +kubebuilder:validation:Enum=v1beta2;v1beta1
type CustomMetricsVersion string

// ExternalMetricsVersion is a version of external.metrics.k8s.io.
// +kubebuilder:validation:Enum=v1beta1
type ExternalMetricsVersion string

const (
	CustomMetricsV1beta2   CustomMetricsVersion   = "v1beta2"
	CustomMetricsV1beta1   CustomMetricsVersion   = "v1beta1"
	ExternalMetricsV1beta1 ExternalMetricsVersion = "v1beta1"
)

// CustomMetricsSpec says how custom.metrics.k8s.io is served.
type CustomMetricsSpec struct {
	// +optional
	// +listType=set
	Versions []CustomMetricsVersion `json:"versions,omitempty"`
	// As spec.resourceMetrics.removeDespiteConsumers.
	// +optional
	// +listType=set
	RemoveDespiteConsumers []CustomMetricsVersion `json:"removeDespiteConsumers,omitempty"`
	// In the language of prometheus-adapter (`rules` of its configuration). Of rules
	// that make the same metric the last one counts.
	// +optional
	// +listType=atomic
	Rules []MetricRule `json:"rules,omitempty"`
}

// ExternalMetricsSpec says how external.metrics.k8s.io is served.
type ExternalMetricsSpec struct {
	// +optional
	// +listType=set
	Versions []ExternalMetricsVersion `json:"versions,omitempty"`
	// +optional
	// +listType=set
	RemoveDespiteConsumers []ExternalMetricsVersion `json:"removeDespiteConsumers,omitempty"`
	// In the language of prometheus-adapter (`externalRules` of its configuration).
	// +optional
	// +listType=atomic
	Rules []MetricRule `json:"rules,omitempty"`
}

// MetricRule makes metrics of series. The first five fields are prometheus-adapter's.
type MetricRule struct {
	SeriesQuery string `json:"seriesQuery"`
	// +listType=atomic
	SeriesFilters []SeriesFilter `json:"seriesFilters,omitempty"`
	Resources     RuleResources  `json:"resources,omitzero"`
	Name          RuleName       `json:"name,omitzero"`
	MetricsQuery  string         `json:"metricsQuery,omitempty"`

	// Source of the series. Default: the first of spec.sources.
	Source string `json:"source,omitempty"`
	// Time between two evaluations. Default: the source's.
	Interval *metav1.Duration `json:"interval,omitempty"`
	// What becomes of several series of one object. Default: Reject.
	Duplicates DuplicatesPolicy `json:"duplicates,omitempty"`
	// Makes 0 of what is no number, as prometheus-adapter does. Default: no value.
	NaNAsZero bool `json:"nanAsZero,omitempty"`
}

// DuplicatesPolicy says what becomes of several series of one object.
// +kubebuilder:validation:Enum=Reject;Sum;Average;Minimum;Maximum
type DuplicatesPolicy string

// SeriesFilter keeps series by their name: one of its members.
type SeriesFilter struct {
	Is    string `json:"is,omitempty"`
	IsNot string `json:"isNot,omitempty"`
}

// RuleResources says which labels name objects.
type RuleResources struct {
	Template   string                  `json:"template,omitempty"`
	Overrides  map[string]RuleResource `json:"overrides,omitempty"`
	Namespaced *bool                   `json:"namespaced,omitempty"`
}

// RuleResource is what a label names.
type RuleResource struct {
	Group    string `json:"group,omitempty"`
	Resource string `json:"resource"`
}

// RuleName makes a metric's name of a series' name.
type RuleName struct {
	Matches string `json:"matches,omitempty"`
	As      string `json:"as,omitempty"`
}

// ResourceRules is prometheus-adapter's `resourceRules`, for a cluster whose CPU and
// memory figures are in a source.
type ResourceRules struct {
	CPU    ResourceRule `json:"cpu"`
	Memory ResourceRule `json:"memory"`
	// Window of the queries, as a Prometheus duration such as `5m` or `1d`.
	Window string `json:"window,omitempty"`
	// Source of the figures. Default: the first of spec.sources.
	Source string `json:"source,omitempty"`
	// Time between two evaluations. Default: the source's.
	Interval *metav1.Duration `json:"interval,omitempty"`
}

// ResourceRule is how one resource is queried.
type ResourceRule struct {
	ContainerQuery string        `json:"containerQuery"`
	NodeQuery      string        `json:"nodeQuery"`
	Resources      RuleResources `json:"resources,omitzero"`
	ContainerLabel string        `json:"containerLabel"`
}
