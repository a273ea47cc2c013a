// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"bytes"
	"encoding/json"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// indent is that of pretty JSON.
const indent = "  "

// emptyJSONList is a list of any kind without its items.
type emptyJSONList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           [0]int `json:"items"`
}

func typeMeta(gvk schema.GroupVersionKind) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: gvk.Kind, APIVersion: gvk.GroupVersion().String()}
}

// writeJSON writes the list as JSON.
func (l *list) writeJSON(w io.Writer, gvk schema.GroupVersionKind, pretty bool) error {
	empty, err := json.Marshal(emptyJSONList{TypeMeta: typeMeta(gvk), ListMeta: l.meta()})
	if err != nil {
		return err
	}
	return writeJSONItems(w, empty, pretty, l.Items, func(e *jsonEncoder, b []byte, o *samplestore.Object) []byte {
		return l.kind.json(e, append(b, '{'), o)
	})
}

// jsonItem appends an item of an array.
type jsonItem func(e *jsonEncoder, b []byte, o *samplestore.Object) []byte

// writeJSONItems writes an object whose last member is an array. empty is that object with an empty array.
//
// The first write is a single byte: after such a write the API server buffers until the answer is
// long enough for gzip, while it takes a longer one for the whole answer.
func writeJSONItems(w io.Writer, empty []byte, pretty bool, items []object, item jsonItem) error {
	start, end := bytes.TrimSuffix(empty, []byte("]}")), "]}\n"
	if pretty {
		var indented bytes.Buffer
		if err := json.Indent(&indented, empty, "", indent); err != nil {
			return err
		}
		start, end = bytes.TrimSuffix(indented.Bytes(), []byte("]\n}")), "]\n}"
		if len(items) > 0 {
			end = "\n" + indent + end
		}
	}
	if _, err := w.Write(start[:1]); err != nil {
		return err
	}
	e := jsonEncoders.Get().(*jsonEncoder)
	defer putJSONEncoder(e)
	return inChunks(w, func(chunk *bytes.Buffer) error {
		chunk.Write(start[1:])
		for i, o := range prefetched(items) {
			if i > 0 {
				chunk.WriteByte(',')
			}
			if pretty {
				chunk.WriteString("\n" + indent + indent)
				e.compact = item(e, e.compact[:0], o)
				if err := json.Indent(chunk, e.compact, indent+indent, indent); err != nil {
					return err
				}
			} else {
				chunk.Write(item(e, chunk.AvailableBuffer(), o))
			}
			if err := writeChunk(w, chunk); err != nil {
				return err
			}
		}
		chunk.WriteString(end)
		return nil
	})
}

// writeJSON writes the object as it is outside of a list.
func (o *object) writeJSON(w io.Writer, gvk schema.GroupVersionKind, pretty bool) error {
	e := jsonEncoders.Get().(*jsonEncoder)
	defer putJSONEncoder(e)
	return inChunks(w, func(chunk *bytes.Buffer) error {
		if pretty {
			e.compact = o.kind.json(e, appendJSONKind(append(e.compact[:0], '{'), gvk), o.point)
			return json.Indent(chunk, e.compact, "", indent)
		}
		chunk.Write(o.kind.json(e, appendJSONKind(append(chunk.AvailableBuffer(), '{'), gvk), o.point))
		return chunk.WriteByte('\n')
	})
}
