// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ObjectMetric is a metric of objects that exists now.
type ObjectMetric struct {
	// Resource is plural, with its group.
	Resource schema.GroupResource
	// Kind of the objects in the version that the cluster prefers.
	Kind       schema.GroupVersionKind
	Namespaced bool
	Name       string
}

// ObjectRequest asks for a metric of objects.
type ObjectRequest struct {
	// Resource as the client wrote it; equivalent names of a resource that moved
	// between groups mean the same.
	Resource schema.GroupResource
	// Namespace of the objects; empty for those without.
	Namespace string
	// Names of the objects; nil for all, where the question need not name them.
	Names []string
	// Selected says that the names are those that a selector selects now, however many
	// that are; otherwise the client named the object.
	Selected bool
	Metric   string
	// Series selects among the series of the metric (metricLabelSelector); may be nil.
	Series labels.Selector
}

// ExternalRequest asks for a metric that describes no object.
type ExternalRequest struct {
	Namespace string
	// Metric is the name, escapes resolved.
	Metric string
	// Series selects among the values by their labels; may be nil.
	Series labels.Selector
}

// ObjectMetrics says which metrics of objects exist and how they are read.
type ObjectMetrics interface {
	// ObjectMetrics returns the first of those that exist now, at most so many and each
	// once, and how many there are. Metrics of rules come before those that teams declare,
	// each in order. The slice is shared; it is the same one while nothing has changed.
	ObjectMetrics(most int) (first []ObjectMetric, total int)
	// ReadObjects returns how a metric is read, and what it describes. A metric
	// that does not exist is a NotFound, a request that cannot be meant a BadRequest
	// (both of apimachinery's errors).
	ObjectQuery(r ObjectRequest) (MetricQuery, ObjectMetric, error)
}

// ExternalMetrics says which external metrics exist and how they are read.
type ExternalMetrics interface {
	// ExternalMetrics returns the names that exist now in some namespace, as
	// ObjectMetrics does.
	ExternalMetrics(most int) (first []string, total int)
	// ReadExternal returns how a metric is read; errors as those of ReadObjects.
	ExternalQuery(r ExternalRequest) (MetricQuery, error)
}
