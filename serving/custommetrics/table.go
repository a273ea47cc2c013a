// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/metrics/pkg/apis/custom_metrics"
)

var columns = []metav1.TableColumnDefinition{
	{Name: "Object", Type: "string", Format: "name", Description: "Name of the object that the metric describes."},
	{Name: "Metric", Type: "string", Description: "Name of the metric."},
	{Name: "Value", Type: "string", Format: "quantity", Description: "Value of the metric."},
	{Name: "Window", Type: "string", Format: "duration", Description: "Time that the value looks back over; 0s for one of an instant."},
	{Name: "Age", Type: "string", Description: "Time since the sample was taken."},
}

// table converts a list, or the value of a watch event.
func (r *reader) table(_ context.Context, object runtime.Object, options *metav1.TableOptions) (*metav1.Table, error) {
	table := &metav1.Table{}
	if !options.NoHeaders {
		table.ColumnDefinitions = columns
	}
	switch object := object.(type) {
	case *custom_metrics.MetricValue:
		table.Rows = []metav1.TableRow{r.row(object)}
	case *custom_metrics.MetricValueList:
		table.ListMeta = object.ListMeta
		table.Rows = make([]metav1.TableRow, len(object.Items))
		for i := range object.Items {
			table.Rows[i] = r.row(&object.Items[i])
		}
	default:
		return nil, fmt.Errorf("converting to a Table: %T is neither a MetricValue nor a list of them", object)
	}
	return table, nil
}

func (r *reader) row(v *custom_metrics.MetricValue) metav1.TableRow {
	var window time.Duration
	if v.WindowSeconds != nil {
		window = time.Duration(*v.WindowSeconds) * time.Second
	}
	return metav1.TableRow{
		Cells: []any{v.DescribedObject.Name, v.Metric.Name, v.Value.String(), window.String(), duration.HumanDuration(r.clock.Since(v.Timestamp.Time))},
		// What of its metadata a client may ask for is that of the described object.
		Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{
			ObjectMeta: metav1.ObjectMeta{Name: v.DescribedObject.Name, Namespace: v.DescribedObject.Namespace},
		}},
	}
}
