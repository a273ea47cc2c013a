// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"encoding/json"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// tableFormat is how a list is encoded as a Table.
type tableFormat struct {
	// version of the Table and of PartialObjectMetadata.
	version schema.GroupVersion
	include metav1.IncludeObjectPolicy
}

// writeTable writes the list as the API server writes the Table that ConvertToTable returns. version is
// that of the objects in rows.
func (l *list) writeTable(w io.Writer, version schema.GroupVersion, pretty bool) error {
	empty, err := json.Marshal(&metav1.Table{
		TypeMeta:          typeMeta(l.table.version.WithKind("Table")),
		ListMeta:          l.meta(),
		ColumnDefinitions: columns,
		Rows:              []metav1.TableRow{},
	})
	if err != nil {
		return err
	}
	return writeJSONItems(w, empty, pretty, l.Items, l.tableRow(version))
}

// tableRow returns a function that appends a row.
func (l *list) tableRow(version schema.GroupVersion) jsonItem {
	var start []byte
	object := func(_ *jsonEncoder, b []byte, _ *samplestore.Object) []byte { return append(b, "null"...) }
	switch l.table.include {
	case metav1.IncludeNone:
	case metav1.IncludeObject:
		start = appendJSONKind([]byte{'{'}, version.WithKind(l.kind.name))
		object = l.kind.json
	default:
		start = appendJSONKind([]byte{'{'}, l.table.version.WithKind("PartialObjectMetadata"))
		object = func(e *jsonEncoder, b []byte, o *samplestore.Object) []byte { return append(e.metadata(b, o), '}') }
	}
	return func(e *jsonEncoder, b []byte, o *samplestore.Object) []byte {
		sum := total(o.Point.Usages)
		b = append(b, `{"cells":[`...)
		b = appendJSONString(b, o.Name)
		b = append(b, `,"`...)
		b = canonicalCPU(sum.CPU).append(b)
		b = append(b, `","`...)
		b = canonicalBytes(sum.Memory).append(b)
		b = append(b, `","`...)
		b = append(b, o.Point.Window.String()...)
		b = append(b, `"],"object":`...)
		b = append(b, start...)
		return append(object(e, b, o), '}')
	}
}
