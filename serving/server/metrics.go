// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/resourcemetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/readiness"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
	"github.com/metricsbackend/metrics-backend-operator/serving/valuecache"
)

const (
	metricsNamespace = "metrics_backend"

	resultSuccess = "success"
	resultError   = "error"
)

var (
	invalidPolicies = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: "external_metrics", Name: "invalid_policies",
		Help:           "Number of ExternalMetricsPolicies of which some rule or subject cannot be used; they deny what they may have been meant for.",
		StabilityLevel: metrics.ALPHA,
	})

	reloads = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace:      metricsNamespace,
		Name:           "config_reloads_total",
		Help:           "Number of times that a MetricsBackend was read, by result. An error leaves the settings before it in force.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})

	reloadSuccessful = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace:      metricsNamespace,
		Name:           "config_last_reload_successful",
		Help:           "0 when the newest MetricsBackend that was read could not be used, otherwise 1.",
		StabilityLevel: metrics.ALPHA,
	})

	newestSample = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace:      metricsNamespace,
		Subsystem:      "store",
		Name:           "newest_node_sample_timestamp_seconds",
		Help:           "Time in seconds since 1970 of the newest node sample that was read from any kubelet; 0 when there is none.",
		StabilityLevel: metrics.ALPHA,
	})
)

// registerMetrics registers the metrics of this package and of those below it with
// the process's registry, which /metrics serves beside the request metrics.
var registerMetrics = sync.OnceFunc(func() {
	boundRequestLabels()
	legacyregistry.MustRegister(invalidPolicies, reloads, reloadSuccessful, newestSample)
	readiness.RegisterMetrics(legacyregistry.MustRegister)
	kubelet.RegisterMetrics(legacyregistry.MustRegister)
	stream.RegisterMetrics(legacyregistry.MustRegister)
	resourcemetrics.RegisterMetrics(legacyregistry.MustRegister)
	query.RegisterMetrics(legacyregistry.MustRegister)
	valuecache.RegisterMetrics(legacyregistry.MustRegister)
	valueapi.RegisterMetrics(legacyregistry.MustRegister)
})
