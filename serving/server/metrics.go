// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const (
	resultSuccess = "success"
	resultError   = "error"
)

var (
	reloads = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "metrics_backend_config_reloads_total",
		Help:           "Number of times that a MetricsBackend was read, by result. An error leaves the settings before it in force.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})

	reloadSuccessful = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "metrics_backend_config_last_reload_successful",
		Help:           "1 when the newest MetricsBackend that was read is in force, 0 when it could not be used.",
		StabilityLevel: metrics.ALPHA,
	})

	storePoints = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name:           "metrics_backend_store_points",
		Help:           "Number of data points held, by kind of object: node or pod.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"kind"})

	readiness = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "metrics_backend_first_readiness",
		Help:           "1 since all gates of the first readiness were open at once, 0 before.",
		StabilityLevel: metrics.ALPHA,
	})
)

// registerMetrics registers this package's metrics with the process's registry,
// which /metrics serves beside the request metrics.
var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(reloads, reloadSuccessful, storePoints, readiness)
})
