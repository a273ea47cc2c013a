// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"k8s.io/metrics/pkg/apis/metrics"

	"github.com/metricsbackend/metrics-backend-operator/serving/metricset"
)

// The encodings as labels. Other is what falls back to the API server's encoders.
const (
	encodingJSON     = "json"
	encodingProtobuf = "protobuf"
	encodingOther    = "other"
)

// MetricSet has the metrics of this package.
var MetricSet = metricset.New("metrics_api_")

var encodedTotal = MetricSet.CounterVec("encoded_points_total",
	"Number of times that a data point was encoded for watches, by encoding. A point is encoded once in json and once in protobuf for "+
		"all watches of all versions; in other (Table, metadata, CBOR) once for all watches that ask for the same, "+
		"as long as these are no more than two encodings.", "group", "resource", "encoding")

func countEncode(resource, encoding string) {
	encodedTotal.WithLabelValues(metrics.GroupName, resource, encoding).Inc()
}
