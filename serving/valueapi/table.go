// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Columns are those of kubectl get: first what tells a value from others, then Value,
// Window and Age, whose cells are Cells.
func Columns(first ...metav1.TableColumnDefinition) []metav1.TableColumnDefinition {
	return append(first,
		metav1.TableColumnDefinition{Name: "Value", Type: "string", Format: "quantity", Description: "Value of the metric."},
		metav1.TableColumnDefinition{Name: "Window", Type: "string", Format: "duration", Description: "Time that the value looks back over; 0s for one of an instant."},
		metav1.TableColumnDefinition{Name: "Age", Type: "string", Description: "Time since the sample was taken."},
	)
}

// Cells are those of a value, a window in seconds (nil for an instant) and an age.
func Cells(value resource.Quantity, windowSeconds *int64, age time.Duration) []any {
	var window time.Duration
	if windowSeconds != nil {
		window = time.Duration(*windowSeconds) * time.Second
	}
	return []any{value.String(), window.String(), duration.HumanDuration(age)}
}

// Table shows the values of a list, or the one of a watch event, each in a row.
func Table[V any](columns []metav1.TableColumnDefinition, options *metav1.TableOptions, list metav1.ListMeta, values []V, row func(*V) metav1.TableRow) *metav1.Table {
	table := &metav1.Table{ListMeta: list, Rows: make([]metav1.TableRow, len(values))}
	if !options.NoHeaders {
		table.ColumnDefinitions = columns
	}
	for i := range values {
		table.Rows[i] = row(&values[i])
	}
	return table
}
