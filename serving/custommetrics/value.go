// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/metrics/pkg/apis/custom_metrics"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

// object makes the API object of a value.
func (r *resolved) object(v *query.Value, window time.Duration) custom_metrics.MetricValue {
	return custom_metrics.MetricValue{
		DescribedObject: custom_metrics.ObjectReference{
			Kind: r.metric.Kind.Kind,
			// "v1" for the core group, by which clients compare.
			APIVersion: r.metric.Kind.GroupVersion().String(),
			Namespace:  r.namespace,
			Name:       v.Object,
		},
		Metric:        custom_metrics.MetricIdentifier{Name: r.target.metric, Selector: r.selector.DeepCopy()},
		Timestamp:     metav1.Time{Time: v.Time},
		WindowSeconds: valueapi.WindowSeconds(window),
		Value:         v.Quantity,
	}
}
