// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"strconv"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// protobufEncoder appends the very bytes that the stock protobuf serializer writes for
// the API objects; encoding_test.go holds it to that. Field numbers are those of
// k8s.io/metrics and k8s.io/apimachinery's generated.proto, which never change.
type protobufEncoder struct{ labels labelCache }

var protobufEncoders = sync.Pool{New: func() any {
	return &protobufEncoder{labels: labelCache{encode: appendProtobufLabels}}
}}

// node appends the fragment of a NodeMetrics: the message that it is.
func (e *protobufEncoder) node(b []byte, o *samplestore.Object) []byte {
	b = e.head(b, o)
	if len(o.Point.Usages) > 0 {
		b = appendUsage(b, 4, &o.Point.Usages[0])
	}
	return b
}

// pod appends the fragment of a PodMetrics.
func (e *protobufEncoder) pod(b []byte, o *samplestore.Object) []byte {
	b = e.head(b, o)
	for i := range o.Point.Usages {
		u := &o.Point.Usages[i]
		b = appendLength(b, 4, 0)
		container := len(b)
		b = appendUsage(appendStringField(b, 1, u.Name), 2, u)
		b = setLength(b, container, 0)
	}
	return b
}

// head appends the fields that nodes and pods have in common, which are the first. Of the
// metadata, empty fields are written, too: proto2 has them required.
func (e *protobufEncoder) head(b []byte, o *samplestore.Object) []byte {
	b = appendLength(b, 1, usualLength)
	metadata := len(b)
	b = appendStringField(b, 1, o.Name)
	b = appendStringField(b, 2, "") // generateName
	b = appendStringField(b, 3, o.Namespace)
	b = appendStringField(b, 4, "") // selfLink
	b = appendStringField(b, 5, "") // uid
	b = appendLength(b, 6, 0)
	version := len(b)
	b = strconv.AppendInt(b, int64(o.Point.Newest), 10)
	b = setLength(b, version, 0)
	b = appendVarintField(b, 7, 0) // generation
	b = appendTime(b, 8, o.Point.Time)
	b = append(b, e.labels.get(o.Meta.Labels)...)
	b = setLength(b, metadata, usualLength)

	b = appendTime(b, 2, o.Point.Time)
	b = appendLength(b, 3, varintFieldSize(uint64(o.Point.Window)))
	return appendVarintField(b, 1, uint64(o.Point.Window))
}

// appendProtobufLabels appends the entries of a map of labels.
func appendProtobufLabels(b []byte, labels []samplestore.Label) []byte {
	for _, label := range labels {
		b = appendLength(b, 11, fieldSize(len(label.Name))+fieldSize(len(label.Value)))
		b = appendStringField(appendStringField(b, 1, label.Name), 2, label.Value)
	}
	return b
}

// appendTime appends whole seconds, as the API does in every encoding.
func appendTime(b []byte, field byte, t samplestore.Time) []byte {
	b = appendLength(b, field, timeSize(t))
	if t == 0 {
		return b
	}
	return appendVarintField(appendVarintField(b, 1, uint64(t.Unix())), 2, 0)
}

// appendUsage appends the entries of a map from resource name to quantity.
func appendUsage(b []byte, field byte, u *samplestore.Usage) []byte {
	b = appendQuantity(b, field, "cpu", canonicalCPU(u.CPU))
	b = appendQuantity(b, field, "memory", canonicalBytes(u.Memory))
	if u.HasSwap {
		b = appendQuantity(b, field, string(resourceSwap), canonicalBytes(u.Swap))
	}
	return b
}

// appendQuantity appends an entry of a name and a message with a string. Their lengths are below 128,
// so that each is a byte.
func appendQuantity(b []byte, field byte, name string, value canonical) []byte {
	size := value.size()
	b = append(b, bytesTag(field), byte(len(name)+size+6), bytesTag(1), byte(len(name)))
	b = append(b, name...)
	b = append(b, bytesTag(2), byte(size+2), bytesTag(1), byte(size))
	return value.append(b)
}

// appendLength begins a field of so many bytes. Field numbers are below 16, so that a tag is a byte.
func appendLength(b []byte, field byte, size int) []byte {
	if size < 0x80 {
		return append(b, bytesTag(field), byte(size))
	}
	return protowire.AppendVarint(append(b, bytesTag(field)), uint64(size))
}

// usualLength is the length of a message of hundreds of bytes, for appendLength before the true one is known.
const usualLength = 0x80

// setLength replaces the length that appendLength appended for the field that begins at start and
// is now all of the rest. If the true one takes another number of bytes, the field is moved.
func setLength(b []byte, start, appended int) []byte {
	size := len(b) - start
	before, now := protowire.SizeVarint(uint64(appended)), protowire.SizeVarint(uint64(size))
	if now > before {
		b = append(b, make([]byte, now-before)...)
	}
	if now != before {
		copy(b[start-before+now:], b[start:start+size])
	}
	_ = protowire.AppendVarint(b[:start-before], uint64(size))
	return b[:start-before+now+size]
}

func appendStringField(b []byte, field byte, s string) []byte {
	return append(appendLength(b, field, len(s)), s...)
}

func appendVarintField(b []byte, field byte, v uint64) []byte {
	return protowire.AppendVarint(append(b, field<<3|byte(protowire.VarintType)), v)
}

func bytesTag(field byte) byte { return field<<3 | byte(protowire.BytesType) }
