// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package custommetrics serves custom.metrics.k8s.io, v1beta1 and v1beta2: metrics
// that describe Kubernetes objects.
//
// A request passes through path.go (the target, from what was authorized), request.go (its label
// selector is resolved to names by Objects, query.ObjectMetrics has the query, query.Querier its
// result, of which the values of the requested objects are kept) and value.go (the API objects). A
// watch subscribes to the query instead (subscription.go). Package valueapi handles paths,
// discovery and streams.
package custommetrics

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/metrics/pkg/apis/custom_metrics/install"
	"k8s.io/metrics/pkg/apis/custom_metrics/v1beta1"
	"k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

// Scheme knows the types of custom.metrics.k8s.io and what every API server needs.
var Scheme = valueapi.NewScheme(install.Install)

// GroupVersions returns every version that is compiled in, the preferred one first.
// It is not the order of the upstream scheme, which prefers v1beta1: v1beta2 is the
// one that autoscalers and the stock client know best.
func GroupVersions() []schema.GroupVersion {
	return []schema.GroupVersion{v1beta2.SchemeGroupVersion, v1beta1.SchemeGroupVersion}
}

// Objects resolves label selectors to the names of objects.
type Objects interface {
	// Names returns the names of a resource's objects in a namespace (empty for those
	// without one), ordered. Errors are apimachinery's own.
	Names(ctx context.Context, resource schema.GroupVersionResource, namespace string, selector labels.Selector) ([]string, error)
	// Known returns the cached result of Names, or false. It does not block, and updates the cache
	// for the next call.
	Known(resource schema.GroupVersionResource, namespace string, selector labels.Selector) ([]string, bool)
}

// Options of the API group.
type Options struct {
	// Metrics has the metrics and their queries.
	Metrics query.ObjectMetrics
	Objects Objects
	valueapi.Options
}

// InstallAPI adds the enabled versions of custom.metrics.k8s.io to an API server, see
// valueapi.Install.
func InstallAPI(server *genericapiserver.GenericAPIServer, o Options) (*valueapi.Group, error) {
	r := &reader{metrics: o.Metrics, querier: o.Querier, objects: o.Objects, clock: o.Clock}
	return valueapi.Install(server, valueapi.API{
		Versions:  GroupVersions(),
		Scheme:    Scheme,
		ListKind:  kindList,
		ValueKind: "MetricValue",
		NewList:   func() runtime.Object { return &custom_metrics.MetricValueList{} },
		Columns:   columns,
		Row:       row,
		Routes:    r.routes(),
		Resources: valueapi.CachedResources(o.Metrics.ObjectMetrics, resource),
		NoMetrics: resource(&query.ObjectMetric{Resource: namespaces, Name: v1alpha1.NoMetrics}),
	}, o.Options)
}

const kindList = "MetricValueList"

// resource returns a metric in discovery: a subresource of what it describes. Those of namespaces
// are listed as prometheus-adapter lists them, although they are read at
// namespaces/NAMESPACE/metrics/METRIC.
func resource(m *query.ObjectMetric) metav1.APIResource {
	return metav1.APIResource{Name: m.Resource.String() + "/" + m.Name, Namespaced: m.Namespaced, Kind: kindList}
}
