// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import "k8s.io/component-base/metrics"

var (
	discovered = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "metrics_api", Subsystem: "discovery", Name: "metrics",
		Help:           "Number of metrics that discovery tells of, by API group.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"group"})
	undiscovered = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "metrics_api", Subsystem: "discovery", Name: "omitted_metrics",
		Help:           "Number of metrics that can be read but that discovery does not tell of, since there are too many, by API group.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"group"})
)

// RegisterMetrics registers the metrics, for example with
// legacyregistry.MustRegister. Without it they cost nothing and count nothing.
func RegisterMetrics(register func(...metrics.Registerable)) { register(discovered, undiscovered) }
