// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package externalmetrics

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/metrics/pkg/apis/external_metrics"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

// newList makes a list of the values of a metric, in the order of their labels.
func newList(metric string, values *query.Values) *external_metrics.ExternalMetricValueList {
	list := &external_metrics.ExternalMetricValueList{
		ListMeta: metav1.ListMeta{ResourceVersion: values.ResourceVersion()},
		Items:    make([]external_metrics.ExternalMetricValue, 0, len(values.Items)),
	}
	for i := range values.Items {
		list.Items = append(list.Items, *newValue(metric, values.Window, &values.Items[i]))
	}
	return list
}

// passedList makes a list of the values that another implementation answered.
func passedList(ctx context.Context, result *query.Result) *external_metrics.ExternalMetricValueList {
	return &external_metrics.ExternalMetricValueList{
		ListMeta: metav1.ListMeta{ResourceVersion: query.ResourceVersion(result.Time)},
		Items:    valueapi.PassedItems[external_metrics.ExternalMetricValue](ctx, result),
	}
}

func newValue(metric string, window time.Duration, v *query.Value) *external_metrics.ExternalMetricValue {
	value := &external_metrics.ExternalMetricValue{
		MetricName: metric, MetricLabels: v.Labels, Timestamp: metav1.NewTime(v.Time), Value: v.Quantity,
		WindowSeconds: valueapi.WindowSeconds(window),
	}
	if value.MetricLabels == nil {
		// The field is not optional.
		value.MetricLabels = map[string]string{}
	}
	return value
}

var columns = []metav1.TableColumnDefinition{
	{Name: "Metric", Type: "string", Description: "Name of the metric."},
	{Name: "Labels", Type: "string", Description: "Labels of the value, which tell it from all others of the metric."},
}

// row returns the row of a value in a Table. A value has no metadata, but a row must have some.
func row(object runtime.Object) (valueapi.Row, bool) {
	v, ok := object.(*external_metrics.ExternalMetricValue)
	if !ok {
		return valueapi.Row{}, false
	}
	return valueapi.Row{
		Cells: []any{v.MetricName, labels.Set(v.MetricLabels).String()}, Value: v.Value, WindowSeconds: v.WindowSeconds, Time: v.Timestamp.Time,
		Name: v.MetricName,
	}, true
}
