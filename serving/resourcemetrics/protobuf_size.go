// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// This file returns the sizes of what protobufEncoder appends: in protobuf the size of a message comes
// before it, and a large list is never in memory as a whole.

func (e *protobufEncoder) nodeSize(o *samplestore.Object) int {
	size := e.headSize(o)
	if len(o.Point.Usages) > 0 {
		size += usageSize(&o.Point.Usages[0])
	}
	return size
}

func (e *protobufEncoder) podSize(o *samplestore.Object) int {
	size := e.headSize(o)
	for i := range o.Point.Usages {
		u := &o.Point.Usages[i]
		size += fieldSize(fieldSize(len(u.Name)) + usageSize(u))
	}
	return size
}

func (e *protobufEncoder) headSize(o *samplestore.Object) int {
	return fieldSize(e.metadataSize(o)) + fieldSize(timeSize(o.Point.Time)) + fieldSize(varintFieldSize(uint64(o.Point.Window)))
}

func (e *protobufEncoder) metadataSize(o *samplestore.Object) int {
	return fieldSize(len(o.Name)) + fieldSize(len(o.Namespace)) + fieldSize(signedSize(int64(o.Point.Newest))) + 3*fieldSize(0) +
		varintFieldSize(0) + fieldSize(timeSize(o.Point.Time)) + e.labelsSize(o.Meta.Labels)
}

func (e *protobufEncoder) labelsSize(labels map[string]string) int {
	if cached, found := e.labels.find(labels); found {
		return len(cached.encoded)
	}
	size := 0
	for name, value := range labels {
		size += fieldSize(fieldSize(len(name)) + fieldSize(len(value)))
	}
	return size
}

func timeSize(t samplestore.Time) int {
	if t == 0 {
		return 0
	}
	return varintFieldSize(uint64(t.Unix())) + varintFieldSize(0)
}

func usageSize(u *samplestore.Usage) int {
	size := quantitySize("cpu", canonicalCPU(u.CPU)) + quantitySize("memory", canonicalBytes(u.Memory))
	if u.HasSwap {
		size += quantitySize(string(resourceSwap), canonicalBytes(u.Swap))
	}
	return size
}

func quantitySize(name string, value canonical) int {
	return fieldSize(fieldSize(len(name)) + fieldSize(fieldSize(value.size())))
}

// signedSize returns the number of digits, and one more for a sign.
func signedSize(v int64) int {
	if v < 0 {
		return 1 + decimalSize(uint64(-v))
	}
	return decimalSize(uint64(v))
}

// fieldSize returns the size of a field of so many bytes, whose number is below 16.
func fieldSize(content int) int { return 1 + protowire.SizeBytes(content) }

// varintFieldSize returns the size of a field with a number, whose own number is below 16.
func varintFieldSize(v uint64) int { return 1 + protowire.SizeVarint(v) }
