// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// protobuf: the same objects, in frames of protobuf.
func protobuf(ctx context.Context, t *target) (string, error) {
	got, err := t.initialOf(ctx, "", nil, func() (*openWatch, error) {
		return t.connection.watchProtobuf(ctx, t.watchPath(""), t.watchQuery(nil), t.api, t.resource.Identify)
	})
	if err != nil {
		return "", err
	}
	// So that the same data point in JSON is compared with it.
	t.ledger.note(t.resource.Name, got...)
	return fmt.Sprintf("%d objects", len(got)), nil
}

// watchAs opens a watch whose objects are of a kind of meta.k8s.io, and returns
// the first event for each object that lists have.
func (t *target) watchAs(ctx context.Context, accept string, decode func(json.RawMessage) (Object, error)) ([]Object, error) {
	events := func(body io.Reader) func() (event, error) {
		decoder := json.NewDecoder(body)
		return func() (event, error) {
			var frame struct {
				Type   string
				Object json.RawMessage
			}
			if err := decoder.Decode(&frame); err != nil {
				return event{}, err
			}
			o, err := decode(frame.Object)
			return event{Type: frame.Type, Raw: frame.Object, Object: o}, wrongObject(err)
		}
	}
	return t.initialOf(ctx, "", nil, func() (*openWatch, error) {
		return t.connection.stream(ctx, t.watchPath(""), t.watchQuery(nil), accept, events)
	})
}

// table: what kubectl prints. The first event brings the columns.
func table(ctx context.Context, t *target) (string, error) {
	columns, first := 0, true
	got, err := t.watchAs(ctx, acceptTable, func(raw json.RawMessage) (Object, error) {
		var table metav1.Table
		if err := json.Unmarshal(raw, &table); err != nil {
			return Object{}, err
		}
		if table.Kind != "Table" || len(table.Rows) != 1 {
			return Object{}, fmt.Errorf("want a Table with one row, got %.300s", raw)
		}
		if first {
			columns, first = len(table.ColumnDefinitions), false
		}
		if columns == 0 || len(table.Rows[0].Cells) != columns {
			return Object{}, fmt.Errorf("a row of %d cells for %d columns: %.300s", len(table.Rows[0].Cells), columns, raw)
		}
		return t.metadata(table.Rows[0].Object.Raw)
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d rows of %d columns", len(got), columns), nil
}

// metadataOnly: what metadata informers ask for.
func metadataOnly(ctx context.Context, t *target) (string, error) {
	got, err := t.watchAs(ctx, acceptMetadata, func(raw json.RawMessage) (Object, error) { return t.metadata(raw) })
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d objects", len(got)), nil
}

func (t *target) metadata(raw json.RawMessage) (Object, error) {
	o, err := t.resource.Identify(raw)
	switch {
	case err != nil:
		return o, err
	case o.Kind != "PartialObjectMetadata":
		return o, fmt.Errorf("want PartialObjectMetadata, got %.300s", raw)
	case o.Name == "" || o.ResourceVersion == "":
		return o, fmt.Errorf("the metadata lacks name or resourceVersion: %.300s", raw)
	case o.Sample != "":
		return o, errors.New("the metadata comes with content")
	}
	return o, nil
}
