// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Rules are loosely typed in the CRD's schema, which bounds their lengths and counts
// alone: each is judged by itself by what serves, so that a bad one is a condition
// and never stops the others, nor the object that holds them.

// CustomMetricsVersion is a version of custom.metrics.k8s.io.
// +kubebuilder:validation:Enum=v1beta2;v1beta1
type CustomMetricsVersion string

// ExternalMetricsVersion is a version of external.metrics.k8s.io.
// +kubebuilder:validation:Enum=v1beta1
type ExternalMetricsVersion string

const (
	// CustomMetricsV1beta2 is custom.metrics.k8s.io/v1beta2, whose values tell the
	// selector of their series.
	CustomMetricsV1beta2 CustomMetricsVersion = "v1beta2"
	// CustomMetricsV1beta1 is custom.metrics.k8s.io/v1beta1.
	CustomMetricsV1beta1 CustomMetricsVersion = "v1beta1"
	// ExternalMetricsV1beta1 is external.metrics.k8s.io/v1beta1.
	ExternalMetricsV1beta1 ExternalMetricsVersion = "v1beta1"
)

// CustomMetricsSpec says how custom.metrics.k8s.io is served.
type CustomMetricsSpec struct {
	// Versions that are registered with kube-apiserver. As with resourceMetrics, one
	// that is added is registered once every ready pod serves it, and one that is
	// taken out leaves discovery before anything else changes, but not while clients
	// use it. Default: [v1beta2, v1beta1].
	// +optional
	// +kubebuilder:default={"v1beta2","v1beta1"}
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Versions []CustomMetricsVersion `json:"versions,omitempty"`

	// Versions that are removed although clients used them today or yesterday
	// (status.consumers). Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	RemoveDespiteConsumers []CustomMetricsVersion `json:"removeDespiteConsumers,omitempty"`

	// Rules in the language of prometheus-adapter (`rules` of its configuration),
	// which `kubectl metrics import adapter-config` takes over. Of rules that make the
	// same metric of the same resource the last one counts. A rule that cannot be used
	// is told of in status.rules and the condition RulesReady, and stops no other. Default: none;
	// CustomMetrics alone make metrics.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Rules []MetricRule `json:"rules,omitempty"`
}

// ExternalMetricsSpec says how external.metrics.k8s.io is served.
type ExternalMetricsSpec struct {
	// Versions that are registered with kube-apiserver. Default: [v1beta1].
	// +optional
	// +kubebuilder:default={"v1beta1"}
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1
	Versions []ExternalMetricsVersion `json:"versions,omitempty"`

	// Versions that are removed although clients used them today or yesterday
	// (status.consumers). Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1
	RemoveDespiteConsumers []ExternalMetricsVersion `json:"removeDespiteConsumers,omitempty"`

	// Rules in the language of prometheus-adapter (`externalRules` of its
	// configuration), which `kubectl metrics import adapter-config` takes over. Of
	// rules that make the same metric the last one counts. A rule that cannot be used
	// is told of in status.rules and the condition RulesReady, and stops no other. Default: none;
	// ExternalMetrics alone make metrics.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Rules []MetricRule `json:"rules,omitempty"`
}

// MetricRule makes metrics of series. The first five fields are prometheus-adapter's,
// and mean what they mean there.
type MetricRule struct {
	// Selects the series that the rule is for, as `{__name__=~"^container_.*"}`.
	// A rule needs it.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	SeriesQuery string `json:"seriesQuery,omitempty"`

	// Keeps, of those, series by their name. All filters must agree. Default: all are kept.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	SeriesFilters []SeriesFilter `json:"seriesFilters,omitempty"`

	// Which labels of the series name the objects that the metric describes. A custom
	// metric's rule needs it; an external metric's may name the namespace.
	// +optional
	Resources RuleResources `json:"resources,omitzero"`

	// How the metric's name is made of the series' name. Default: it is the same.
	// +optional
	Name RuleName `json:"name,omitzero"`

	// Template of the query that gives the values, delimited by `<<` and `>>`, with
	// .Series, .LabelMatchers, .LabelValuesByName, .GroupBy and .GroupBySlice.
	// Default: `sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)`. For external
	// metrics .GroupBy is empty, so that the default is one sum.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	MetricsQuery string `json:"metricsQuery,omitempty"`

	// Source of the series: a name in spec.sources. Default: the first of spec.sources.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Source string `json:"source,omitempty"`

	// Time between two evaluations of the rule's queries, for all clients together. A
	// duration such as `30s`, from 1s to 1h. Default: the source's.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Interval RuleInterval `json:"interval,omitempty"`

	// What becomes of several series of one object: Reject (it has no value, of which
	// status.rules warns while clients ask for it), Sum, Average, Minimum or Maximum.
	// Default: Reject.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Duplicates DuplicatesPolicy `json:"duplicates,omitempty"`

	// Makes 0 of what is no number (NaN), as prometheus-adapter does; an autoscaler
	// then scales down on it. Default: false, which gives no value.
	// +optional
	NaNAsZero bool `json:"nanAsZero,omitempty"`
}

// RuleInterval is a duration that is judged with its rule, not by the CRD's schema.
type RuleInterval string

// DuplicatesPolicy says what becomes of several series of one object.
type DuplicatesPolicy string

const (
	// DuplicatesReject gives the object no value, and says so.
	DuplicatesReject DuplicatesPolicy = "Reject"
	// DuplicatesSum adds the values up.
	DuplicatesSum DuplicatesPolicy = "Sum"
	// DuplicatesAverage takes their arithmetic mean.
	DuplicatesAverage DuplicatesPolicy = "Average"
	// DuplicatesMinimum takes the least of them.
	DuplicatesMinimum DuplicatesPolicy = "Minimum"
	// DuplicatesMaximum takes the greatest of them.
	DuplicatesMaximum DuplicatesPolicy = "Maximum"
)

// SeriesFilter keeps series by their name: one of its members.
type SeriesFilter struct {
	// Regular expression (RE2, not anchored) that the name must match.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Is string `json:"is,omitempty"`

	// Regular expression (RE2, not anchored) that the name must not match.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	IsNot string `json:"isNot,omitempty"`
}

// RuleResources says which labels name objects.
type RuleResources struct {
	// Template of a label's name, with <<.Group>> and <<.Resource>>, such as
	// `kube_<<.Group>>_<<.Resource>>`. Default: none; only overrides name objects.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Template string `json:"template,omitempty"`

	// Labels and the resources whose objects they name. They come before the template.
	// +optional
	// +kubebuilder:validation:MaxProperties=200
	Overrides map[string]RuleResource `json:"overrides,omitempty"`

	// Of rules of external metrics: whether the series belong to the namespace of
	// the request, by the label that names namespaces. Default: true.
	// +optional
	Namespaced *bool `json:"namespaced,omitempty"`
}

// RuleResource is what a label names.
type RuleResource struct {
	// Group of the resource. Default: core.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`

	// Resource, singular or plural, such as pod or deployments.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Resource string `json:"resource,omitempty"`
}

// RuleName makes a metric's name of a series' name.
type RuleName struct {
	// Regular expression (RE2, not anchored) that the series' name must match; the
	// others make no metric. Default: `.*`.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Matches string `json:"matches,omitempty"`

	// The metric's name, with $1 or ${name} for what the groups of `matches` took.
	// Default: $1 where there is one group, $0 where there is none.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	As string `json:"as,omitempty"`
}

// ResourceRules is prometheus-adapter's `resourceRules`, for a cluster whose CPU and
// memory figures are in a source.
type ResourceRules struct {
	// How CPU is queried, in cores. Both cpu and memory are needed.
	// +optional
	CPU ResourceRule `json:"cpu,omitzero"`

	// How memory is queried, in bytes.
	// +optional
	Memory ResourceRule `json:"memory,omitzero"`

	// Window of the queries, as a Prometheus duration such as `5m` or `1d`, told to
	// clients with each value. Default: 1m.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Window string `json:"window,omitempty"`

	// Source of the figures: a name in spec.sources. Default: the first of spec.sources.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Source string `json:"source,omitempty"`

	// Time between two evaluations. A duration such as `30s`, from 1s to 1h.
	// Default: the source's.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Interval RuleInterval `json:"interval,omitempty"`
}

// ResourceRule is how one resource is queried.
type ResourceRule struct {
	// Template of the query for containers, with <<.LabelMatchers>> and <<.GroupBy>>.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	ContainerQuery string `json:"containerQuery,omitempty"`

	// Template of the query for nodes, likewise.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	NodeQuery string `json:"nodeQuery,omitempty"`

	// Which labels of the series name nodes, namespaces and pods.
	// +optional
	Resources RuleResources `json:"resources,omitzero"`

	// Label that holds the container's name.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	ContainerLabel string `json:"containerLabel,omitempty"`
}
