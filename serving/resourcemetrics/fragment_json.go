// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// This file writes the very bytes that the stock JSON serializer writes for the
// API objects; encoding_test.go holds it to that.

// nodeJSON encodes a NodeMetrics as an item of a list.
func nodeJSON(o *samplestore.Object) ([]byte, error) {
	return jsonFragment(o, func(b []byte) []byte {
		b = append(b, `,"usage":`...)
		if len(o.Point.Usages) == 0 {
			return append(b, '{', '}')
		}
		return appendJSONUsage(b, o.Point.Usages[0])
	}), nil
}

// podJSON encodes a PodMetrics as an item of a list.
func podJSON(o *samplestore.Object) ([]byte, error) {
	return jsonFragment(o, func(b []byte) []byte {
		b = append(b, `,"containers":[`...)
		for i, u := range o.Point.Usages {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, `{"name":`...)
			b = appendJSONString(b, u.Name)
			b = append(b, `,"usage":`...)
			b = appendJSONUsage(b, u)
			b = append(b, '}')
		}
		return append(b, ']')
	}), nil
}

// jsonFragment writes what nodes and pods have in common, and lets rest write
// the last member.
func jsonFragment(o *samplestore.Object, rest func([]byte) []byte) []byte {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)

	b := s.buf[:0]
	b = append(b, `{"metadata":{"name":`...)
	b = appendJSONString(b, o.Name)
	if o.Namespace != "" {
		b = append(b, `,"namespace":`...)
		b = appendJSONString(b, o.Namespace)
	}
	b = append(b, `,"resourceVersion":"`...)
	b = strconv.AppendInt(b, o.Point.Newest.UnixMilli(), 10)
	b = append(b, '"')
	if !o.Point.Time.IsZero() {
		b = append(b, `,"creationTimestamp":`...)
		b = appendJSONTime(b, o.Point.Time)
	}
	if len(o.Meta.Labels) > 0 {
		b = append(b, `,"labels":`...)
		b = appendJSONLabels(b, o.Meta.Labels)
	}
	b = append(b, `},"timestamp":`...)
	b = appendJSONTime(b, o.Point.Time)
	b = append(b, `,"window":`...)
	b = appendJSONString(b, o.Point.Window.String())
	b = rest(b)
	b = append(b, '}')

	s.buf = b
	return slices.Clone(b)
}

func appendJSONLabels(b []byte, labels map[string]string) []byte {
	var room [16]string
	keys := slices.AppendSeq(room[:0], maps.Keys(labels))
	slices.Sort(keys)
	for i, key := range keys {
		if i == 0 {
			b = append(b, '{')
		} else {
			b = append(b, ',')
		}
		b = appendJSONString(b, key)
		b = append(b, ':')
		b = appendJSONString(b, labels[key])
	}
	return append(b, '}')
}

func appendJSONUsage(b []byte, u samplestore.Usage) []byte {
	b = append(b, `{"cpu":"`...)
	b = appendCPU(b, u.CPU)
	b = append(b, `","memory":"`...)
	b = appendBytes(b, u.Memory)
	if u.HasSwap {
		b = append(b, `","swap":"`...)
		b = appendBytes(b, u.Swap)
	}
	return append(b, '"', '}')
}

func appendJSONTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, "null"...)
	}
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, time.RFC3339)
	return append(b, '"')
}

// appendJSONString leaves all but plain ASCII to package json, which escapes
// more than JSON asks for.
func appendJSONString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			escaped, err := json.Marshal(s)
			if err != nil {
				// A string always marshals.
				escaped = []byte(`""`)
			}
			return append(b, escaped...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// writeJSON writes a list. The first write is a single byte: a longer one would
// tell the API server that all of the answer is in it, and is too short for gzip.
func (l *list) writeJSON(w io.Writer, gvk schema.GroupVersionKind) error {
	meta, err := json.Marshal(l.meta())
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, "{"); err != nil {
		return err
	}
	return inChunks(w, func(w *chunkWriter) error {
		w.add(appendJSONKind(nil, gvk))
		w.addString(`"metadata":`)
		w.add(meta)
		w.addString(`,"items":[`)
		for i := range l.Items {
			fragment, err := l.Items[i].fragment(samplestore.EncodingJSON)
			if err != nil {
				return err
			}
			if i > 0 {
				w.addString(",")
			}
			w.add(fragment)
			if w.err != nil {
				return w.err
			}
		}
		w.addString("]}\n")
		return nil
	})
}

func writeJSONObject(w *chunkWriter, gvk schema.GroupVersionKind, fragment []byte) {
	w.addString("{")
	w.add(appendJSONKind(nil, gvk))
	w.add(fragment[1:])
	w.addString("\n")
}

func appendJSONKind(b []byte, gvk schema.GroupVersionKind) []byte {
	b = append(b, `"kind":`...)
	b = appendJSONString(b, gvk.Kind)
	b = append(b, `,"apiVersion":`...)
	b = appendJSONString(b, gvk.GroupVersion().String())
	return append(b, ',')
}
