// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"bytes"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// protobufMagic begins every protobuf message of the Kubernetes API.
const protobufMagic = "k8s\x00"

// writeProtobuf writes the list as protobuf, where sizes come first. The first write is the magic number
// alone, for the reason that writeJSONItems has.
func (l *list) writeProtobuf(w io.Writer, gvk schema.GroupVersionKind) error {
	meta := l.meta()
	header, err := meta.Marshal()
	if err != nil {
		return err
	}
	header = protowire.AppendBytes([]byte{bytesTag(1)}, header)
	e := protobufEncoders.Get().(*protobufEncoder)
	defer protobufEncoders.Put(e)
	size := len(header)
	for _, o := range prefetched(l.Items) {
		size += fieldSize(l.kind.protobufSize(e, o))
	}
	if _, err := io.WriteString(w, protobufMagic); err != nil {
		return err
	}
	return inChunks(w, func(chunk *bytes.Buffer) error {
		return writeProtobufUnknown(chunk, gvk, size, func() (int, error) {
			chunk.Write(header)
			written := len(header)
			for _, o := range prefetched(l.Items) {
				item := appendLength(chunk.AvailableBuffer(), 2, usualLength)
				item = setLength(l.kind.protobuf(e, item, o), len(item), usualLength)
				chunk.Write(item)
				written += len(item)
				if err := writeChunk(w, chunk); err != nil {
					return written, err
				}
			}
			return written, nil
		})
	})
}

// writeProtobuf writes the object as it is outside of a list.
func (o *object) writeProtobuf(w io.Writer, gvk schema.GroupVersionKind) error {
	e := protobufEncoders.Get().(*protobufEncoder)
	defer protobufEncoders.Put(e)
	return inChunks(w, func(chunk *bytes.Buffer) error {
		chunk.WriteString(protobufMagic)
		return writeProtobufUnknown(chunk, gvk, o.kind.protobufSize(e, o.point), func() (int, error) {
			return chunk.Write(o.kind.protobuf(e, chunk.AvailableBuffer(), o.point))
		})
	})
}

// writeProtobufUnknown writes the envelope that names the type of its content. content returns how many
// bytes it wrote; another number than size is an error.
func writeProtobufUnknown(chunk *bytes.Buffer, gvk schema.GroupVersionKind, size int, content func() (int, error)) error {
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{Kind: gvk.Kind, APIVersion: gvk.GroupVersion().String()}}
	_, err := envelope.MarshalToWriter(chunk, size, func(io.Writer) (int, error) { return content() })
	return err
}
