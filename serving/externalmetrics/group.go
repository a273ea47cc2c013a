// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package externalmetrics

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/metrics/pkg/apis/external_metrics"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
	"github.com/metricsbackend/metrics-backend-operator/serving/valuecache"
)

// The kinds of what is answered.
const (
	kindList  = "ExternalMetricValueList"
	kindValue = "ExternalMetricValue"
)

// Options are what the API group is answered from.
type Options struct {
	Metrics  query.ExternalMetrics
	Querier  query.Querier
	Policies *Policies
	// Enabled reports whether a version is served.
	Enabled func(schema.GroupVersion) bool
	// Options are those of all groups of values; InstallAPI sets their Source.
	valueapi.Options
}

// Group is external.metrics.k8s.io in an API server.
type Group struct {
	*valueapi.Group
	cache *valuecache.Cache
}

// InstallAPI adds external.metrics.k8s.io to an API server, in those versions that are
// enabled. The API server needs NewRequestInfoResolver and valueapi's. It returns nil
// where no version is enabled.
func InstallAPI(server *genericapiserver.GenericAPIServer, o Options) (*Group, error) {
	cache := valuecache.NewCache(GroupName, o.Clock, o.Querier)
	api := newAPI(&reader{metrics: o.Metrics, querier: o.Querier, cache: cache, policies: o.Policies, clock: o.Clock}, o.Enabled)
	if len(api.Versions) == 0 {
		return nil, nil
	}
	o.Source = cache
	group, err := valueapi.Install(server, api, o.Options)
	if err != nil {
		return nil, fmt.Errorf("install %s: %w", GroupName, err)
	}
	cache.Observe(group.Hub().Publish)
	return &Group{Group: group, cache: cache}, nil
}

// Run runs the watches and updates discovery until the context ends.
func (g *Group) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { g.cache.Run(ctx) })
	running.Go(func() { g.Group.Run(ctx) })
	running.Wait()
}

// Refresh applies changed metrics to watches now instead of with their next result.
func (g *Group) Refresh() { g.cache.Refresh() }

func newAPI(r *reader, enabled func(schema.GroupVersion) bool) valueapi.API {
	api := valueapi.API{
		Scheme: Scheme, Codecs: codecs, ListKind: kindList, ValueKind: kindValue,
		NewList:   func() runtime.Object { return &external_metrics.ExternalMetricValueList{} },
		Table:     r.table,
		Resources: r.resources,
		Routes: []valueapi.Route{{
			Path: "/namespaces/{namespace}/{metric}", Operation: "listExternalMetricValues",
			Doc: "list or watch the values of an external metric",
			Parameters: []valueapi.Parameter{
				{Name: "namespace", Doc: "namespace from which the metric is read"},
				{Name: "metric", Doc: `name of the metric, with \| for each slash`},
			},
			WatchLimit: watchLimit,
			Parse:      r.parse,
		}},
	}
	for _, version := range GroupVersions() {
		if enabled(version) {
			api.Versions = append(api.Versions, version)
		}
	}
	return api
}

// resources are what discovery tells of: each metric as paths have it.
func (r *reader) resources(most int) (first []metav1.APIResource, total int) {
	metrics, total := r.metrics.ExternalMetrics(most)
	return r.told.Resources(metrics, func(metric *string) metav1.APIResource {
		return metav1.APIResource{Name: escape(*metric), Namespaced: true, Kind: kindList}
	}), total
}
