// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"maps"
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

	"github.com/metricsbackend/metrics-backend-operator/serving/canary"
	"github.com/metricsbackend/metrics-backend-operator/serving/custommetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/externalmetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/resourcemetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/config"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

// All API groups are installed whatever the MetricsBackend says: its versions are those of
// APIServices only.
var (
	// scheme has the types of all API groups.
	scheme = newScheme()
	// codecs are those of the generic API server; each group has its own, too.
	codecs = serializer.NewCodecFactory(scheme)
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	resourcemetrics.Install(s)
	custominstall.Install(s)
	externalinstall.Install(s)
	canary.Install(s)
	return s
}

// compiledVersions returns all versions of all API groups, preferred ones first.
func compiledVersions() []schema.GroupVersion {
	return slices.Concat(resourcemetrics.GroupVersions(), custommetrics.GroupVersions(), externalmetrics.GroupVersions())
}

// countedAPIs returns the APIs whose requests are counted.
func countedAPIs() []stream.API {
	return slices.Concat(resourcemetrics.APIs(), valueapi.APIs(custommetrics.GroupVersions()...), valueapi.APIs(externalmetrics.GroupVersions()...))
}

// openAPIDefinitions returns the definitions of the types of all API groups.
func openAPIDefinitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	all := resourcemetrics.GetOpenAPIDefinitions(ref)
	maps.Copy(all, custommetrics.OpenAPIDefinitions(ref))
	maps.Copy(all, externalmetrics.OpenAPIDefinitions(ref))
	return all
}

// requestInfoResolver returns a resolver that knows the paths of all API groups.
func requestInfoResolver(config *genericapiserver.Config) request.RequestInfoResolver {
	watching := valueapi.NewRequestInfoResolver(genericapiserver.NewRequestInfoResolver(config), custom_metrics.GroupName, externalmetrics.GroupName)
	return externalmetrics.NewRequestInfoResolver(watching)
}

// watches are the watches of all API groups.
type watches struct {
	quota    *stream.Quota
	streams  *resourcemetrics.Streams
	resource *resourcemetrics.Group
	values   []*valueapi.Group
}

// apply applies new settings to open and future watches.
func (w *watches) apply(s config.WatchSettings) {
	w.quota.Apply(s.Limits)
	w.streams.Apply(s.Stream)
	w.resource.ServeWatch(s.Enabled)
	for _, g := range w.values {
		g.Apply(s.Stream)
		g.ServeWatch(s.Enabled)
	}
}

// drain rejects new watches and ends the open ones, spread over a duration.
func (w *watches) drain(over time.Duration) {
	w.streams.Drain(over)
	for _, g := range w.values {
		g.Drain(over)
	}
}
