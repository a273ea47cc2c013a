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
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/metrics/pkg/apis/custom_metrics/install"
	"k8s.io/metrics/pkg/apis/custom_metrics/v1beta1"
	"k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
	"github.com/metricsbackend/metrics-backend-operator/serving/valuecache"
)

var (
	// Scheme knows the types of custom.metrics.k8s.io and what every API server needs.
	Scheme = valueapi.NewScheme(install.Install)

	codecs = valueapi.NewCodecs(Scheme)
)

// GroupVersions returns every version that is compiled in, the preferred one first.
// It is not the order of the upstream scheme, which prefers v1beta1: v1beta2 is the
// one that autoscalers and the stock client know best.
func GroupVersions() []schema.GroupVersion {
	return []schema.GroupVersion{v1beta2.SchemeGroupVersion, v1beta1.SchemeGroupVersion}
}

// APIs returns the labels of all versions in metrics.
func APIs() []stream.API {
	var apis []stream.API
	for _, version := range GroupVersions() {
		apis = append(apis, valueapi.MetricsAPI(version))
	}
	return apis
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
	// Metrics has the metrics and their queries, and Querier has the results.
	Metrics query.ObjectMetrics
	Querier query.Querier
	Objects Objects
	// Enabled reports whether a version is served.
	Enabled func(schema.GroupVersion) bool
	// Options are those of all groups of values; InstallAPI sets their Source.
	valueapi.Options
}

// Group is custom.metrics.k8s.io in an API server.
type Group struct {
	*valueapi.Group
	cache *valuecache.Cache
}

// InstallAPI adds custom.metrics.k8s.io to an API server, in those versions that are
// enabled; where none is, it returns nil. It serves watch until ServeWatch says
// otherwise. The API server needs valueapi.NewRequestInfoResolver.
func InstallAPI(server *genericapiserver.GenericAPIServer, o Options) (*Group, error) {
	var versions []schema.GroupVersion
	for _, version := range GroupVersions() {
		if o.Enabled(version) {
			versions = append(versions, version)
		}
	}
	if len(versions) == 0 {
		return nil, nil
	}
	r := &reader{
		metrics: o.Metrics, querier: o.Querier, objects: o.Objects, clock: o.Clock,
		cache: valuecache.NewCache(custom_metrics.GroupName, o.Clock, o.Querier),
	}
	o.Source = r.cache
	group, err := valueapi.Install(server, valueapi.API{
		Versions:  versions,
		Scheme:    Scheme,
		Codecs:    codecs,
		ListKind:  "MetricValueList",
		ValueKind: "MetricValue",
		NewList:   func() runtime.Object { return &custom_metrics.MetricValueList{} },
		Table:     r.table,
		Routes:    r.routes(),
		Resources: r.resources,
	}, o.Options)
	if err != nil {
		return nil, err
	}
	r.cache.Observe(group.Hub().Publish)
	return &Group{Group: group, cache: r.cache}, nil
}

// Run runs the watches and updates discovery until the context ends.
func (g *Group) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { g.cache.Run(ctx) })
	running.Go(func() { g.Group.Run(ctx) })
	running.Wait()
}

// Refresh applies changed rules to watches now instead of with their next result.
func (g *Group) Refresh() { g.cache.Refresh() }
