// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package externalmetrics

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/metrics/pkg/apis/external_metrics"
	"k8s.io/metrics/pkg/apis/external_metrics/install"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

// GroupName is the name of the API group.
const GroupName = external_metrics.GroupName

// Scheme knows the types of external.metrics.k8s.io and what every API server needs.
var Scheme = valueapi.NewScheme(install.Install)

// GroupVersions returns every version that is compiled in, the preferred one first.
func GroupVersions() []schema.GroupVersion {
	return Scheme.PrioritizedVersionsForGroup(GroupName)
}

// Options of the API group.
type Options struct {
	// Metrics has the metrics and their queries.
	Metrics  query.ExternalMetrics
	Policies *Policies
	valueapi.Options
}

// InstallAPI adds the enabled versions of external.metrics.k8s.io to an API server, see
// valueapi.Install. The API server needs NewRequestInfoResolver, too.
func InstallAPI(server *genericapiserver.GenericAPIServer, o Options) (*valueapi.Group, error) {
	r := &reader{metrics: o.Metrics, querier: o.Querier, policies: o.Policies}
	return valueapi.Install(server, valueapi.API{
		Versions: GroupVersions(), Scheme: Scheme, ListKind: kindList, ValueKind: "ExternalMetricValue",
		NewList: func() runtime.Object { return &external_metrics.ExternalMetricValueList{} },
		Columns: columns,
		Row:     row,
		Routes: []valueapi.Route{{
			Path: "/namespaces/{namespace}/{metric}", Operation: "listExternalMetricValues",
			Doc: "list or watch the values of an external metric",
			Parameters: []valueapi.Parameter{
				{Name: "namespace", Doc: "namespace from which the metric is read, or * for one that is the same in all"},
				{Name: "metric", Doc: `name of the metric, with \| for each slash`},
			},
			WatchLimit: watchLimit,
			Parse:      r.parse,
		}},
		Resources: valueapi.CachedResources(o.Metrics.ExternalMetrics, resource),
		NoMetrics: metav1.APIResource{Name: v1alpha1.NoMetrics, Namespaced: true, Kind: kindList},
	}, o.Options)
}

const kindList = "ExternalMetricValueList"

// resource returns a metric in discovery, by its name in paths.
func resource(metric *string) metav1.APIResource {
	return metav1.APIResource{Name: query.EscapeName(*metric), Namespaced: true, Kind: kindList}
}
