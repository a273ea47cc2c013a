// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// resources are the metrics that there are now, as discovery tells of them: each is a
// subresource of what it describes. Those of namespaces are told as prometheus-adapter
// tells them, although they are read at namespaces/NAMESPACE/metrics/METRIC.
func (r *reader) resources(most int) (first []metav1.APIResource, total int) {
	metrics, total := r.metrics.ObjectMetrics(most)
	return r.told.Resources(metrics, func(m *query.ObjectMetric) metav1.APIResource {
		return metav1.APIResource{Name: m.Resource.String() + "/" + m.Name, Namespaced: m.Namespaced, Kind: "MetricValueList"}
	}), total
}
