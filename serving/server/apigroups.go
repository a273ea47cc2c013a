// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	custominstall "k8s.io/metrics/pkg/apis/custom_metrics/install"
	externalinstall "k8s.io/metrics/pkg/apis/external_metrics/install"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/custommetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/externalmetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/resourcemetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

// All API groups are installed whatever a MetricsBackend says: its versions govern
// APIServices alone.
var (
	// scheme knows the types of all API groups.
	scheme = newScheme()
	// codecs are the generic API server's own; each group has its own, too.
	codecs = serializer.NewCodecFactory(scheme)
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	resourcemetrics.Install(s)
	custominstall.Install(s)
	externalinstall.Install(s)
	return s
}

// compiledVersions returns every version of every API group, the preferred ones first.
func compiledVersions() []schema.GroupVersion {
	return slices.Concat(resourcemetrics.GroupVersions(), custommetrics.GroupVersions(), externalmetrics.GroupVersions())
}

// countedAPIs are what requests are counted by.
func countedAPIs() []stream.API {
	return slices.Concat(resourcemetrics.APIs(), custommetrics.APIs(), externalmetrics.APIs())
}

// openAPIDefinitions are those of all API groups' types.
func openAPIDefinitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	all := resourcemetrics.GetOpenAPIDefinitions(ref)
	maps.Copy(all, custommetrics.OpenAPIDefinitions(ref))
	maps.Copy(all, externalmetrics.OpenAPIDefinitions(ref))
	return all
}

// requestInfoResolver reads paths of metrics as the API groups mean them.
func requestInfoResolver(config *genericapiserver.Config) request.RequestInfoResolver {
	watching := valueapi.NewRequestInfoResolver(genericapiserver.NewRequestInfoResolver(config), custom_metrics.GroupName, externalmetrics.GroupName)
	return externalmetrics.NewRequestInfoResolver(watching)
}

// watchedGroup is an API group that can be watched.
type watchedGroup interface {
	Run(ctx context.Context)
	Apply(settings stream.Settings)
	ServeWatch(serve bool)
	Drain(over time.Duration)
}

// refreshing is an API group whose metrics come and go.
type refreshing interface {
	// Refresh has what is watched follow a change at once.
	Refresh()
}

// answering is what the API groups of values are answered from.
type answering struct {
	custom    query.ObjectMetrics
	external  query.ExternalMetrics
	querier   query.Querier
	objects   custommetrics.Objects
	policies  *externalmetrics.Policies
	admission *stream.Admission
	settings  stream.Settings
	clock     clock.WithTicker
	// minRequestTimeout is the API server's option of that name.
	minRequestTimeout time.Duration
}

// installValues adds custom and external metrics to the API server, in those versions
// that are enabled.
func installValues(server *genericapiserver.GenericAPIServer, a answering, enabled func(schema.GroupVersion) bool) ([]watchedGroup, error) {
	var groups []watchedGroup
	custom, err := custommetrics.InstallAPI(server, custommetrics.Options{
		Metrics: a.custom, Querier: a.querier, Objects: a.objects, Admission: a.admission, Settings: a.settings,
		Clock: a.clock, Random: rand.Float64, MinRequestTimeout: a.minRequestTimeout, Enabled: enabled,
	})
	if err != nil {
		return nil, err
	}
	if custom != nil {
		groups = append(groups, custom)
	}
	external, err := externalmetrics.InstallAPI(server, externalmetrics.Options{
		Metrics: a.external, Querier: a.querier, Policies: a.policies,
		Lists: valueapi.Options{
			Admission: a.admission, Settings: a.settings, Clock: a.clock, Random: rand.Float64, MinRequestTimeout: a.minRequestTimeout,
		},
	}, enabled)
	if err != nil {
		return nil, err
	}
	if external != nil {
		groups = append(groups, external)
	}
	return groups, nil
}
