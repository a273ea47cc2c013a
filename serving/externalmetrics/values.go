// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package externalmetrics

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// noValueError returns why a metric has no value although it has series, such as the one series
// of a quotient that is NaN; nil if it has some values, or no series. An empty list would not
// give the reason.
func noValueError(metric string, values *query.Values) error {
	if len(values.Items) > 0 || values.Omissions == 0 {
		return nil
	}
	err := apierrors.NewNotFound(external_metrics.Resource(escape(metric)), "")
	err.ErrStatus.Message = fmt.Sprintf("external metric %q has no value: ", metric)
	if first := values.Omission(""); first != nil {
		err.ErrStatus.Message += first.Error()
	}
	if values.Omissions > 1 {
		err.ErrStatus.Message += fmt.Sprintf(" (and %d series more without a value)", values.Omissions-1)
	}
	return err
}

// columns are those of kubectl get.
var columns = valueapi.Columns(
	metav1.TableColumnDefinition{Name: "Metric", Type: "string", Description: "Name of the metric."},
	metav1.TableColumnDefinition{Name: "Labels", Type: "string", Description: "Labels of the value, which tell it from all others of the metric."},
)

// table converts lists, and the values of watch events.
func (r *reader) table(_ context.Context, object runtime.Object, options *metav1.TableOptions) (*metav1.Table, error) {
	switch object := object.(type) {
	case *external_metrics.ExternalMetricValueList:
		return valueapi.Table(columns, options, object.ListMeta, object.Items, r.row), nil
	case *external_metrics.ExternalMetricValue:
		return valueapi.Table(columns, options, metav1.ListMeta{}, []external_metrics.ExternalMetricValue{*object}, r.row), nil
	default:
		return nil, fmt.Errorf("converting to a Table: %T is neither an ExternalMetricValue nor a list of them", object)
	}
}

func (r *reader) row(v *external_metrics.ExternalMetricValue) metav1.TableRow {
	return metav1.TableRow{
		Cells: append([]any{v.MetricName, labels.Set(v.MetricLabels).String()},
			valueapi.Cells(v.Value, v.WindowSeconds, r.clock.Since(v.Timestamp.Time))...),
		// A value has no metadata that a client could ask for; there must be some.
		Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: v.MetricName}}},
	}
}
