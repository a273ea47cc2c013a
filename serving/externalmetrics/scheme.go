// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package externalmetrics

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/metrics/pkg/apis/external_metrics"
	"k8s.io/metrics/pkg/apis/external_metrics/install"

	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

// GroupName is the name of the API group.
const GroupName = external_metrics.GroupName

var (
	// Scheme knows the types of external.metrics.k8s.io and what every API server needs.
	Scheme = valueapi.NewScheme(install.Install)

	codecs = valueapi.NewCodecs(Scheme)
)

// GroupVersions returns every version that is compiled in, the preferred one first.
func GroupVersions() []schema.GroupVersion {
	return Scheme.PrioritizedVersionsForGroup(GroupName)
}

// APIs returns what requests are counted by: clients name the resources, so these are
// none of it.
func APIs() []stream.API {
	var apis []stream.API
	for _, version := range GroupVersions() {
		apis = append(apis, valueapi.MetricsAPI(version))
	}
	return apis
}
