// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/metrics/pkg/apis/custom_metrics"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

// object returns the API object of a value.
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

// passedList makes a list of the values that another implementation answered.
func passedList(ctx context.Context, result *query.Result) *custom_metrics.MetricValueList {
	return &custom_metrics.MetricValueList{
		ListMeta: metav1.ListMeta{ResourceVersion: query.ResourceVersion(result.Time)},
		Items:    valueapi.PassedItems[custom_metrics.MetricValue](ctx, result),
	}
}

var columns = []metav1.TableColumnDefinition{
	{Name: "Object", Type: "string", Format: "name", Description: "Name of the object that the metric describes."},
	{Name: "Metric", Type: "string", Description: "Name of the metric."},
}

// row returns the row of a value in a Table. Its metadata are those of the described object.
func row(object runtime.Object) (valueapi.Row, bool) {
	v, ok := object.(*custom_metrics.MetricValue)
	if !ok {
		return valueapi.Row{}, false
	}
	return valueapi.Row{
		Cells: []any{v.DescribedObject.Name, v.Metric.Name}, Value: v.Value, WindowSeconds: v.WindowSeconds, Time: v.Timestamp.Time,
		Namespace: v.DescribedObject.Namespace, Name: v.DescribedObject.Name,
	}, true
}
