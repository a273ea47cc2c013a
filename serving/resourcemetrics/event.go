// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"bytes"
	"io"
	"iter"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metricsbackend/metrics-backend-operator/serving/point"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// nodePoint and podPoint are data points as a hub distributes them. They are the
// store's own objects under another name, so that none is allocated for a watch.
type (
	nodePoint point.Object
	podPoint  point.Object
)

var (
	_ stream.Item = &nodePoint{}
	_ stream.Item = &podPoint{}
)

// ItemKey names the node.
func (p *nodePoint) ItemKey() point.Key { return p.Key }

// ItemLabels are the node's.
func (p *nodePoint) ItemLabels() map[string]string { return p.Meta.Labels }

// ItemSequence is the number of the data point in its table.
func (p *nodePoint) ItemSequence() uint64 { return p.Sequence }

// CacheEncode writes the event of a NodeMetrics.
func (p *nodePoint) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	return writeEvent(nodes, (*point.Object)(p), id, encode, w)
}

// ItemKey names the pod.
func (p *podPoint) ItemKey() point.Key { return p.Key }

// ItemLabels are the pod's.
func (p *podPoint) ItemLabels() map[string]string { return p.Meta.Labels }

// ItemSequence is the number of the data point in its table.
func (p *podPoint) ItemSequence() uint64 { return p.Sequence }

// CacheEncode writes the event of a PodMetrics.
func (p *podPoint) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	return writeEvent(pods, (*point.Object)(p), id, encode, w)
}

// writeEvent writes the bytes of an event, which are made once for all watchers
// that ask for the same encoding. They are written at once: a framer makes a
// frame of each write.
func writeEvent(k *kind, o *point.Object, id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	event, err := o.Events.Encoded(string(id), func() ([]byte, error) {
		buffer := eventBuffers.Get().(*bytes.Buffer)
		defer eventBuffers.Put(buffer)
		buffer.Reset()
		if err := encode(&object{kind: k, point: o}, buffer); err != nil {
			return nil, err
		}
		return bytes.Clone(buffer.Bytes()), nil
	})
	if err != nil {
		return err
	}
	_, err = w.Write(event)
	return err
}

// eventBuffers hold an event while it is made, so that what is kept of it has
// its exact size.
var eventBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// source is a table as a hub reads it.
type source struct {
	*point.Table
	item func(*point.Object) stream.Item
}

var _ stream.Source = &source{}

// Get implements stream.Source.
func (s *source) Get(key point.Key) stream.Item {
	if o := s.Table.Get(key); o != nil {
		return s.item(o)
	}
	return nil
}

// List implements stream.Source.
func (s *source) List(namespace string, after point.Key) iter.Seq[stream.Item] {
	return func(yield func(stream.Item) bool) {
		for o := range s.Table.List(namespace, after) {
			if !yield(s.item(o)) {
				return
			}
		}
	}
}
