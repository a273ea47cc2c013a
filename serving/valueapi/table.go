// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Row is a value in a Table.
type Row struct {
	// Cells are those of API.Columns.
	Cells []any
	Value resource.Quantity
	// WindowSeconds is nil for the value of an instant.
	WindowSeconds *int64
	Time          time.Time
	// Namespace and Name are all the metadata of the row.
	Namespace, Name string
}

// valueColumns come after API.Columns.
var valueColumns = []metav1.TableColumnDefinition{
	{Name: "Value", Type: "string", Format: "quantity", Description: "Value of the metric."},
	{Name: "Window", Type: "string", Format: "duration", Description: "Time that the value looks back over; 0s for one of an instant."},
	{Name: "Age", Type: "string", Description: "Time since the sample was taken."},
}

// tableConvertor converts lists and single values to Tables.
type tableConvertor struct{ *Group }

// ConvertToTable implements rest.TableConvertor.
func (c tableConvertor) ConvertToTable(_ context.Context, object, tableOptions runtime.Object) (*metav1.Table, error) {
	options, _ := tableOptions.(*metav1.TableOptions)
	if options == nil {
		options = &metav1.TableOptions{}
	}
	if options.IncludeObject == metav1.IncludeObject {
		return nil, apierrors.NewBadRequest("rows of metric values hold no objects: leave out includeObject=Object")
	}
	table := &metav1.Table{Rows: []metav1.TableRow{}}
	if !options.NoHeaders {
		table.ColumnDefinitions = slices.Concat(c.api.Columns, valueColumns)
	}
	addRow := func(value runtime.Object) error {
		r, ok := c.api.Row(value)
		if !ok {
			return fmt.Errorf("converting to a Table: %T is neither %s nor a list of it", value, c.api.ValueKind)
		}
		table.Rows = append(table.Rows, c.row(&r))
		return nil
	}
	list, err := meta.ListAccessor(object)
	if err != nil {
		return table, addRow(object)
	}
	table.ResourceVersion = list.GetResourceVersion()
	return table, meta.EachListItem(object, addRow)
}

func (c tableConvertor) row(r *Row) metav1.TableRow {
	var window time.Duration
	if r.WindowSeconds != nil {
		window = time.Duration(*r.WindowSeconds) * time.Second
	}
	return metav1.TableRow{
		Cells: append(r.Cells, r.Value.String(), window.String(), duration.HumanDuration(c.clock.Since(r.Time))),
		// A client may ask for this metadata (IncludeObject: Metadata, the default).
		Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: r.Name, Namespace: r.Namespace}}},
	}
}
