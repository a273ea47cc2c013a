// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"encoding/binary"
	"io"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// This file writes the very bytes that the stock protobuf serializer writes for
// the API objects; encoding_test.go holds it to that. Field numbers are those of
// k8s.io/metrics and k8s.io/apimachinery's generated.proto, which never change.

// protobufMagic begins every protobuf message of the Kubernetes API.
const protobufMagic = "k8s\x00"

// nodeProtobuf encodes a NodeMetrics as an item of a list.
func nodeProtobuf(o *samplestore.Object) ([]byte, error) {
	return protobufFragment(o, func(m *message) {
		if len(o.Point.Usages) > 0 {
			m.usage(4, o.Point.Usages[0])
		}
	}), nil
}

// podProtobuf encodes a PodMetrics as an item of a list.
func podProtobuf(o *samplestore.Object) ([]byte, error) {
	return protobufFragment(o, func(m *message) {
		for _, u := range slices.Backward(o.Point.Usages) {
			end := m.mark()
			m.usage(2, u)
			m.string(1, u.Name)
			m.embed(4, end)
		}
	}), nil
}

// protobufFragment writes what nodes and pods have in common, after rest has
// written the last field.
func protobufFragment(o *samplestore.Object, rest func(*message)) []byte {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	m := message{buf: s.buf[:cap(s.buf)]}
	m.start = len(m.buf)

	rest(&m)
	window := m.mark()
	m.varint(1, uint64(o.Point.Window))
	m.embed(3, window)
	m.time(2, o.Point.Time)
	meta := m.mark()
	m.objectMeta(o)
	m.embed(1, meta)

	s.buf = m.buf
	return slices.Clone(m.buf[m.start:])
}

// message is written from its end to its start, as generated code does it: the
// length of a message inside of another is known before it is written.
type message struct {
	buf []byte
	// start of what was written so far.
	start int
}

// grow makes room for n bytes before start.
func (m *message) grow(n int) {
	if m.start >= n {
		return
	}
	larger := make([]byte, 2*len(m.buf)+n)
	start := len(larger) - (len(m.buf) - m.start)
	copy(larger[start:], m.buf[m.start:])
	m.buf, m.start = larger, start
}

// mark returns how much is written so far: embed makes a field of all after it.
func (m *message) mark() int { return len(m.buf) - m.start }

// embed makes a field of all that was written since the mark.
func (m *message) embed(field byte, mark int) {
	m.uvarint(uint64(len(m.buf) - m.start - mark))
	m.tag(field, lengthDelimited)
}

// The wire types of protobuf that occur here.
const (
	varint          = 0
	lengthDelimited = 2
)

// tag begins a field, whose number is below 16.
func (m *message) tag(field, wire byte) {
	m.grow(1)
	m.start--
	m.buf[m.start] = field<<3 | wire
}

func (m *message) uvarint(v uint64) {
	n := uvarintSize(v)
	m.grow(n)
	m.start -= n
	binary.PutUvarint(m.buf[m.start:], v)
}

func uvarintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

func (m *message) varint(field byte, v uint64) {
	m.uvarint(v)
	m.tag(field, varint)
}

func (m *message) string(field byte, s string) {
	end := m.mark()
	m.grow(len(s))
	m.start -= len(s)
	copy(m.buf[m.start:], s)
	m.embed(field, end)
}

func (m *message) bytes(field byte, p []byte) {
	end := m.mark()
	m.grow(len(p))
	m.start -= len(p)
	copy(m.buf[m.start:], p)
	m.embed(field, end)
}

// time writes whole seconds, as the API does in every encoding.
func (m *message) time(field byte, t time.Time) {
	end := m.mark()
	if !t.IsZero() {
		m.varint(2, 0)
		m.varint(1, uint64(t.Unix()))
	}
	m.embed(field, end)
}

// usage writes the entries of a map from resource name to quantity.
func (m *message) usage(field byte, u samplestore.Usage) {
	var room [24]byte
	if u.HasSwap {
		m.quantity(field, string(resourceSwap), appendBytes(room[:0], u.Swap))
	}
	m.quantity(field, "memory", appendBytes(room[:0], u.Memory))
	m.quantity(field, "cpu", appendCPU(room[:0], u.CPU))
}

func (m *message) quantity(field byte, name string, value []byte) {
	entry := m.mark()
	m.bytes(1, value)
	m.embed(2, entry)
	m.string(1, name)
	m.embed(field, entry)
}

// objectMeta writes empty fields, too: proto2 has them required.
func (m *message) objectMeta(o *samplestore.Object) {
	var room [16]string
	keys := slices.AppendSeq(room[:0], maps.Keys(o.Meta.Labels))
	slices.Sort(keys)
	for _, key := range slices.Backward(keys) {
		entry := m.mark()
		m.string(2, o.Meta.Labels[key])
		m.string(1, key)
		m.embed(11, entry)
	}
	m.time(8, o.Point.Time)
	m.varint(7, 0) // generation
	var digits [20]byte
	m.bytes(6, strconv.AppendInt(digits[:0], o.Point.Newest.UnixMilli(), 10))
	m.string(5, "") // uid
	m.string(4, "") // selfLink
	m.string(3, o.Namespace)
	m.string(2, "") // generateName
	m.string(1, o.Name)
}

// writeProtobuf writes a list. Sizes come first in protobuf, so every fragment is
// made before the first is written. The first write is the magic number alone:
// a longer one would tell the API server that all of the answer is in it.
func (l *list) writeProtobuf(w io.Writer, gvk schema.GroupVersionKind) error {
	meta := l.meta()
	header, err := meta.Marshal()
	if err != nil {
		return err
	}
	size := 1 + uvarintSize(uint64(len(header))) + len(header)
	for i := range l.Items {
		fragment, err := l.Items[i].fragment(samplestore.EncodingProtobuf)
		if err != nil {
			return err
		}
		size += 1 + uvarintSize(uint64(len(fragment))) + len(fragment)
	}
	if _, err := io.WriteString(w, protobufMagic); err != nil {
		return err
	}
	return inChunks(w, func(w *chunkWriter) error {
		return writeProtobufUnknown(w, gvk, size, func() error {
			writeProtobufField(w, 1, header)
			for i := range l.Items {
				fragment, err := l.Items[i].fragment(samplestore.EncodingProtobuf)
				if err != nil {
					return err
				}
				writeProtobufField(w, 2, fragment)
				if w.err != nil {
					return w.err
				}
			}
			return nil
		})
	})
}

func writeProtobufObject(w *chunkWriter, gvk schema.GroupVersionKind, fragment []byte) error {
	w.addString(protobufMagic)
	return writeProtobufUnknown(w, gvk, len(fragment), func() error {
		w.add(fragment)
		return nil
	})
}

// writeProtobufUnknown writes the envelope that names the type of its content.
func writeProtobufUnknown(w *chunkWriter, gvk schema.GroupVersionKind, size int, content func() error) error {
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{Kind: gvk.Kind, APIVersion: gvk.GroupVersion().String()}}
	_, err := envelope.MarshalToWriter(w, size, func(io.Writer) (int, error) { return size, content() })
	return err
}

func writeProtobufField(w *chunkWriter, field byte, content []byte) {
	w.room(1 + binary.MaxVarintLen64)
	w.buf = binary.AppendUvarint(append(w.buf, field<<3|lengthDelimited), uint64(len(content)))
	w.add(content)
}
