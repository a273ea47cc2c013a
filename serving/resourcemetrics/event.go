// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"io"
	"iter"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// point has the methods of stream.Item that nodes and pods share. Like nodePoint and podPoint it is a
// pointer to the store's own object, so that nothing is allocated for a watch.
type point struct{ *samplestore.Object }

// ItemKey names the node or pod.
func (p point) ItemKey() samplestore.Key { return p.Key }

// ItemLabels are those of the node or pod.
func (p point) ItemLabels() map[string]string { return p.Meta.Labels }

// ItemSequence is the number of the data point in its collection.
func (p point) ItemSequence() uint64 { return p.Sequence }

type (
	nodePoint struct{ point }
	podPoint  struct{ point }
)

var (
	_ stream.Item = nodePoint{}
	_ stream.Item = podPoint{}
)

// CacheEncode writes the event of a NodeMetrics.
func (p nodePoint) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	return writeEvent(nodes, p.Object, id, encode, w)
}

// CacheEncode writes the event of a PodMetrics.
func (p podPoint) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	return writeEvent(pods, p.Object, id, encode, w)
}

// writeEvent writes an event in one call, since a framer makes a frame of each call.
func writeEvent(k *kind, o *samplestore.Object, id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	frame, known := k.frames[id]
	if !known {
		return writeCachedEvent(k, o, id, encode, w)
	}
	fragment, err := o.Encoded(frame.encoding, k.eventFragments[frame.encoding])
	if err != nil {
		return err
	}
	event := eventBuffers.Get().(*eventBuffer)
	defer putEventBuffer(event)
	event.b = frame.append(event.b[:0], fragment)
	_, err = w.Write(event.b)
	return err
}

// eventFragment returns a function that encodes a data point for watches, in memory of its own and of
// its exact size, and counts that.
func eventFragment[E any](encoders *sync.Pool, resource, encoding string, fragment func(E, []byte, *samplestore.Object) []byte) func(*samplestore.Object) ([]byte, error) {
	return func(o *samplestore.Object) ([]byte, error) {
		countEncode(resource, encoding)
		e, event := encoders.Get().(E), eventBuffers.Get().(*eventBuffer)
		defer encoders.Put(e)
		defer putEventBuffer(event)
		event.b = fragment(e, event.b[:0], o)
		return slices.Clone(event.b), nil
	}
}

// writeCachedEvent writes an event in the API server's own encoding. The bytes are shared by all
// watchers of that encoding and cached while the data point is the newest.
func writeCachedEvent(k *kind, o *samplestore.Object, id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	return stream.EncodeOnce(&o.Events, id, func() runtime.Object {
		countEncode(k.resource, encodingOther)
		return &object{kind: k, point: o}
	}, encode, w)
}

// source implements stream.Source over a collection.
type source struct {
	*samplestore.Collection
	item func(*samplestore.Object) stream.Item
}

var _ stream.Source = &source{}

// Get implements stream.Source.
func (s *source) Get(key samplestore.Key) stream.Item {
	if o := s.Collection.Get(key); o != nil {
		return s.item(o)
	}
	return nil
}

// Select implements stream.Source.
func (s *source) Select(namespace string, required []samplestore.Label, after samplestore.Key) iter.Seq[stream.Item] {
	return func(yield func(stream.Item) bool) {
		for o := range s.Collection.Select(namespace, required, after) {
			if !yield(s.item(o)) {
				return
			}
		}
	}
}
