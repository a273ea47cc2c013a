// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// resources are the metrics that there are now, as discovery tells of them: each is a
// subresource of what it describes. Those of namespaces are told as prometheus-adapter
// tells them, although they are read at namespaces/NAMESPACE/metrics/METRIC.
func (r *reader) resources() []metav1.APIResource {
	known := r.metrics.ObjectMetrics()
	resources := make([]metav1.APIResource, 0, len(known))
	for i := range known {
		resources = append(resources, metav1.APIResource{
			Name:       known[i].Resource.String() + "/" + known[i].Name,
			Namespaced: known[i].Namespaced,
			Kind:       "MetricValueList",
		})
	}
	return resources
}
