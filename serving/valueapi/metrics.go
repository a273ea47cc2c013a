// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import "github.com/metricsbackend/metrics-backend-operator/serving/metricset"

// MetricSet has the metrics of this package.
var MetricSet = metricset.New("metrics_api_discovery_")

var (
	discovered   = MetricSet.GaugeVec("metrics", "Number of metrics that discovery tells of, by API group.", "group")
	undiscovered = MetricSet.GaugeVec("omitted_metrics",
		"Number of metrics that can be read but that discovery does not tell of, since there are too many, by API group.", "group")
)
