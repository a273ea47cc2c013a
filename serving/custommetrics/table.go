// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/metrics/pkg/apis/custom_metrics"

	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

var columns = valueapi.Columns(
	metav1.TableColumnDefinition{Name: "Object", Type: "string", Format: "name", Description: "Name of the object that the metric describes."},
	metav1.TableColumnDefinition{Name: "Metric", Type: "string", Description: "Name of the metric."},
)

// table converts a list, or the value of a watch event.
func (r *reader) table(_ context.Context, object runtime.Object, options *metav1.TableOptions) (*metav1.Table, error) {
	switch object := object.(type) {
	case *custom_metrics.MetricValue:
		return valueapi.Table(columns, options, metav1.ListMeta{}, []custom_metrics.MetricValue{*object}, r.row), nil
	case *custom_metrics.MetricValueList:
		return valueapi.Table(columns, options, object.ListMeta, object.Items, r.row), nil
	default:
		return nil, fmt.Errorf("converting to a Table: %T is neither a MetricValue nor a list of them", object)
	}
}

func (r *reader) row(v *custom_metrics.MetricValue) metav1.TableRow {
	return metav1.TableRow{
		Cells: append([]any{v.DescribedObject.Name, v.Metric.Name}, valueapi.Cells(v.Value, v.WindowSeconds, r.clock.Since(v.Timestamp.Time))...),
		// What of its metadata a client may ask for is that of the described object.
		Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{
			ObjectMeta: metav1.ObjectMeta{Name: v.DescribedObject.Name, Namespace: v.DescribedObject.Namespace},
		}},
	}
}
