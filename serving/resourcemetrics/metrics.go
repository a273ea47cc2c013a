// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"k8s.io/component-base/metrics"
	metricsapi "k8s.io/metrics/pkg/apis/metrics"
)

// The encodings as labels. Other is what falls back to the API server's encoders.
const (
	encodingJSON     = "json"
	encodingProtobuf = "protobuf"
	encodingOther    = "other"
)

var encodedTotal = metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace: "metrics_api", Name: "encoded_points_total",
	Help: "Number of times that a data point was encoded for watches, by encoding. A point is encoded once in json and once in protobuf for " +
		"all watches of all versions; in other (Table, metadata, CBOR) once for all watches that ask for the same, " +
		"as long as these are no more than two encodings.",
	StabilityLevel: metrics.ALPHA,
}, []string{"group", "resource", "encoding"})

// RegisterMetrics registers the API group's metrics, for example with
// legacyregistry.MustRegister. Without it they cost nothing and count nothing.
func RegisterMetrics(register func(...metrics.Registerable)) { register(encodedTotal) }

func countEncode(resource, encoding string) {
	encodedTotal.WithLabelValues(metricsapi.GroupName, resource, encoding).Inc()
}
