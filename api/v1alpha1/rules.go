// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// The CRD's schema only says which fields a rule must have, and limits the lengths and the
// number of rules. Serving validates each rule separately, so that an invalid one sets a
// condition and affects neither other rules nor the object.

// CustomMetricsVersion is a version of custom.metrics.k8s.io.
// +kubebuilder:validation:Enum=v1beta2;v1beta1
type CustomMetricsVersion string

// ExternalMetricsVersion is a version of external.metrics.k8s.io.
// +kubebuilder:validation:Enum=v1beta1
type ExternalMetricsVersion string

const (
	// CustomMetricsV1beta2 is custom.metrics.k8s.io/v1beta2, whose values include the
	// selector of their series.
	CustomMetricsV1beta2 CustomMetricsVersion = "v1beta2"
	// CustomMetricsV1beta1 is custom.metrics.k8s.io/v1beta1.
	CustomMetricsV1beta1 CustomMetricsVersion = "v1beta1"
	// ExternalMetricsV1beta1 is external.metrics.k8s.io/v1beta1.
	ExternalMetricsV1beta1 ExternalMetricsVersion = "v1beta1"
)

// CustomMetricsSpec says how custom.metrics.k8s.io is served.
type CustomMetricsSpec struct {
	// Versions to register with kube-apiserver. A new version is registered once every
	// ready pod serves it. A version that you remove leaves discovery before anything
	// else changes, but only when no client uses it (see spec.removeDespiteConsumers).
	// Default: [v1beta2, v1beta1].
	// +optional
	// +kubebuilder:default={"v1beta2","v1beta1"}
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Versions []CustomMetricsVersion `json:"versions,omitempty"`

	// What happens to an APIService of this API that someone else owns, such as that of
	// prometheus-adapter. Refuse: it is not changed, no version of this API is registered,
	// and the backend is Stalled; its other APIs are served. IfUnavailable: it is taken
	// over once kube-apiserver has reported it unavailable for a minute. Always: it is
	// taken over as soon as this backend serves its version. Its previous state is kept
	// in an annotation, and is restored, if its Service still answers, when this
	// MetricsBackend no longer needs it. Default: Refuse.
	// +optional
	// +kubebuilder:default=Refuse
	Adoption AdoptionPolicy `json:"adoption,omitempty"`

	// Take an APIService of this API over although autoscalers read metrics there that the
	// serving pods do not answer, and would have no value afterwards. No effect with adoption:
	// Refuse. Default: false.
	// +optional
	AdoptDespiteLostMetrics bool `json:"adoptDespiteLostMetrics,omitempty"`

	// Rules in prometheus-adapter's syntax (`rules` in its configuration), which
	// `kubectl metrics-backend import prometheus-adapter` converts; at most 1000. If several rules
	// define the same metric of the same resource, the last one is used. An invalid rule
	// is reported in status.rules and the condition RulesReady, and does not affect the
	// others. Default: none; only CustomMetrics define metrics.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Rules []MetricRule `json:"rules,omitempty"`

	// Which implementation answers a request, in order: the first route that matches. The
	// rules and declared metrics of this backend (own) are a route, too, and the first one
	// unless another place in the list has it. A request that no route matches gets the
	// answer of this backend. An invalid route matches nothing, one with own all that own
	// defines; it is reported in status.rules, as is one that is never reached. At most 100.
	// Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Routes []MetricRoute `json:"routes,omitempty"`
}

// ExternalMetricsSpec says how external.metrics.k8s.io is served.
type ExternalMetricsSpec struct {
	// Versions to register with kube-apiserver. Default: [v1beta1].
	// +optional
	// +kubebuilder:default={"v1beta1"}
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1
	Versions []ExternalMetricsVersion `json:"versions,omitempty"`

	// What happens to an APIService of this API that someone else owns, such as that of
	// KEDA's adapter. Refuse: it is not changed, no version of this API is registered,
	// and the backend is Stalled; its other APIs are served. IfUnavailable: it is taken
	// over once kube-apiserver has reported it unavailable for a minute. Always: it is
	// taken over as soon as this backend serves its version. Its previous state is kept
	// in an annotation, and is restored, if its Service still answers, when this
	// MetricsBackend no longer needs it. Default: Refuse.
	// +optional
	// +kubebuilder:default=Refuse
	Adoption AdoptionPolicy `json:"adoption,omitempty"`

	// Take an APIService of this API over although autoscalers read metrics there that the
	// serving pods do not answer, and would have no value afterwards. No effect with adoption:
	// Refuse. Default: false.
	// +optional
	AdoptDespiteLostMetrics bool `json:"adoptDespiteLostMetrics,omitempty"`

	// Rules in prometheus-adapter's syntax (`externalRules` in its configuration), which
	// `kubectl metrics-backend import prometheus-adapter` converts; at most 1000. If several rules
	// define the same metric, the last one is used. An invalid rule is reported in
	// status.rules and the condition RulesReady, and does not affect the others.
	// Default: none; only ExternalMetrics define metrics.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Rules []MetricRule `json:"rules,omitempty"`

	// Which implementation answers a request, in order: the first route that matches. The
	// rules and declared metrics of this backend (own) are a route, too, and the first one
	// unless another place in the list has it. A request that no route matches gets the
	// answer of this backend. An invalid route matches nothing, one with own all that own
	// defines; it is reported in status.rules, as is one that is never reached. At most 100.
	// Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Routes []MetricRoute `json:"routes,omitempty"`
}

// MetricRule defines metrics from series. The first five fields have the same meaning
// as in prometheus-adapter.
type MetricRule struct {
	// Selector of the series that the rule applies to, such as
	// `{__name__=~"^container_.*"}`.
	// +required
	// +kubebuilder:validation:MaxLength=16384
	SeriesQuery string `json:"seriesQuery"`

	// Filters on the names of these series; a series must pass all of them. Default:
	// none; all series are used.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	SeriesFilters []SeriesFilter `json:"seriesFilters,omitempty"`

	// Which labels of the series name the objects that the metric describes. Required in
	// a rule for custom metrics; in one for external metrics it can name the namespace.
	// +optional
	Resources RuleResources `json:"resources,omitzero"`

	// How the metric's name is derived from the series' name. Default: it is the same.
	// +optional
	Name RuleName `json:"name,omitzero"`

	// Template of the query for the values, with the delimiters `<<` and `>>` and the
	// fields .Series, .LabelMatchers, .LabelValuesByName, .GroupBy and .GroupBySlice. For
	// external metrics .GroupBy is empty, so that the default is a single sum. Default:
	// `sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)`.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	MetricsQuery string `json:"metricsQuery,omitempty"`

	// Source of the series: a name in spec.sources. Default: the first one there with
	// prometheus.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Source string `json:"source,omitempty"`

	// Time between two evaluations of a query of the rule; all clients share the result.
	// A duration such as `30s`, from 1s to 1h. Default: the source's interval.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Interval RuleInterval `json:"interval,omitempty"`

	// What happens if one object has several series, or an external metric several with the
	// same labels. Reject: there is no value, and status.rules has a warning while clients
	// request it. Sum, Average, Minimum,
	// Maximum: their values are combined into one. Default: Reject.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	DuplicatesPolicy DuplicatesPolicy `json:"duplicatesPolicy,omitempty"`

	// Converts NaN to 0, as prometheus-adapter does; autoscalers then scale down on it.
	// Default: false; a series with NaN has no value.
	// +optional
	NaNAsZero bool `json:"nanAsZero,omitempty"`

	// Age of the newest sample of a series, when its value is computed, beyond which the
	// series has no value: a query such as rate(x[5m]) has values for 5 minutes after the last
	// sample. Of several series the oldest counts. A duration such as `90s`, from 1s to 1h; it
	// should be at least twice the scrape interval. The query costs the source more. The rule is
	// invalid if the times of the samples cannot be derived from metricsQuery. Default: any age.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	MaxSampleAge RuleInterval `json:"maxSampleAge,omitempty"`

	// What happens if one of several series has no value: NaN without nanAsZero, an
	// infinity, a number beyond ±9.2e15, or one that is too old (maxSampleAge). Reject: an
	// external metric has no value, nor has an object whose series are combined (duplicatesPolicy),
	// and errors name the series. Omit: the other series are served, and autoscalers scale by
	// these alone. Default: Reject.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	InvalidValuesPolicy InvalidValuesPolicy `json:"invalidValuesPolicy,omitempty"`
}

// InvalidValuesPolicy is what happens if one of several series has no value.
type InvalidValuesPolicy string

// With Reject there is no value of all series, with Omit that of the others.
const (
	InvalidValuesReject InvalidValuesPolicy = "Reject"
	InvalidValuesOmit   InvalidValuesPolicy = "Omit"
)

// RuleInterval is a duration that is validated with its rule, not by the CRD's schema.
type RuleInterval string

// DuplicatesPolicy is what happens to several series of one object.
type DuplicatesPolicy string

const (
	// DuplicatesReject gives the object no value, and reports that.
	DuplicatesReject DuplicatesPolicy = "Reject"
	// DuplicatesSum is the sum of the values.
	DuplicatesSum DuplicatesPolicy = "Sum"
	// DuplicatesAverage is the arithmetic mean of the values.
	DuplicatesAverage DuplicatesPolicy = "Average"
	// DuplicatesMinimum is the smallest value.
	DuplicatesMinimum DuplicatesPolicy = "Minimum"
	// DuplicatesMaximum is the largest value.
	DuplicatesMaximum DuplicatesPolicy = "Maximum"
)

// SeriesFilter is a filter on the names of series. It has one of its fields.
type SeriesFilter struct {
	// Regular expression (RE2, not anchored) that the name must match. Default: none.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Is string `json:"is,omitempty"`

	// Regular expression (RE2, not anchored) that the name must not match. Default: none.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	IsNot string `json:"isNot,omitempty"`
}

// RuleResources says which labels name objects.
type RuleResources struct {
	// Template of the name of the label that names objects of a resource, with the fields
	// <<.Group>> and <<.Resource>>, such as `kube_<<.Group>>_<<.Resource>>`. Default:
	// none; only overrides are used.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Template string `json:"template,omitempty"`

	// Labels, and the resources whose objects they name. They take precedence over the
	// template. At most 200. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=200
	Overrides map[string]RuleResource `json:"overrides,omitempty"`

	// In rules for external metrics: true if a request selects only series of its own
	// namespace, by the label that names namespaces. With false the metric is the same in
	// all namespaces, and in `namespaces/*`. No effect in other rules. Default: true.
	// +optional
	Namespaced *bool `json:"namespaced,omitempty"`
}

// RuleResource is the resource whose objects a label names.
type RuleResource struct {
	// API group of the resource. Default: the core group.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`

	// Resource in the singular or plural, such as pod or deployments.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Resource string `json:"resource"`
}

// RuleName derives a metric's name from a series' name.
type RuleName struct {
	// Regular expression (RE2, not anchored) that the series' name must match; other
	// series define no metric. Default: `.*`.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Matches string `json:"matches,omitempty"`

	// The metric's name, with $1 or ${name} for the groups of `matches`. Default: $1 if
	// there is one group, $0 if there is none.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	As string `json:"as,omitempty"`
}

// ResourceRules is `resourceRules` of prometheus-adapter, for clusters that have CPU and
// memory usage in a source.
type ResourceRules struct {
	// How CPU usage is queried, in cores.
	// +required
	CPU ResourceRule `json:"cpu"`

	// How memory usage is queried, in bytes.
	// +required
	Memory ResourceRule `json:"memory"`

	// Window of the queries, which clients get with each value. It does not change the
	// queries. A Prometheus duration such as `5m` or `1d`. Default: 1m.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Window string `json:"window,omitempty"`

	// Source that is queried: a name in spec.sources. Default: the first one there with
	// prometheus.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Source string `json:"source,omitempty"`

	// Time between two evaluations. A duration such as `30s`, from 1s to 1h. Default: the
	// source's interval.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Interval RuleInterval `json:"interval,omitempty"`
}

// ResourceRule is how one resource is queried.
type ResourceRule struct {
	// Template of the query for containers, with the fields <<.LabelMatchers>> and
	// <<.GroupBy>>.
	// +required
	// +kubebuilder:validation:MaxLength=16384
	ContainerQuery string `json:"containerQuery"`

	// Template of the query for nodes, with the fields <<.LabelMatchers>> and
	// <<.GroupBy>>. Default: none; nodes have no metrics.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	NodeQuery string `json:"nodeQuery,omitempty"`

	// Which labels of the series name namespaces, pods and, for nodeQuery, nodes.
	// +required
	Resources RuleResources `json:"resources"`

	// Label whose value is the container's name.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	ContainerLabel string `json:"containerLabel"`
}
