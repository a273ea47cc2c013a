// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"iter"
	"runtime"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// prefetchBatch is the number of objects whose memory is read at once. It fits into a core's cache.
const prefetchBatch = 64

// prefetched yields the index and the data point of each item.
//
// Neighbors in a list come from different nodes, so each pointer leads to memory that is in no
// cache, and an encoder, which follows one after another, mostly waits. prefetched reads a batch
// before it is encoded: the processor overlaps reads that do not depend on each other. The store's
// iteration has read the objects and points before, for the same reason; prefetched adds what only
// encoders read, when they do, since a whole list does not stay in a cache in between.
func prefetched(items []object) iter.Seq2[int, *samplestore.Object] {
	return func(yield func(int, *samplestore.Object) bool) {
		for i := range items {
			if i%prefetchBatch == 0 {
				prefetch(items[i:min(i+prefetchBatch, len(items))])
			}
			if !yield(i, items[i].point) {
				return
			}
		}
	}
}

// prefetch reads a byte of each part of the objects that encoders need.
func prefetch(items []object) {
	var read uint64
	for _, item := range items {
		o := item.point
		read += uint64(len(o.Meta.Labels)) + uint64(len(o.Point.Node)) + uint64(o.Point.Newest)
		if o.Name != "" {
			read += uint64(o.Name[0])
		}
		if o.Namespace != "" {
			read += uint64(o.Namespace[0])
		}
		for i := range o.Point.Usages {
			read += o.Point.Usages[i].CPU
		}
	}
	runtime.KeepAlive(read) // so that the compiler keeps the reads
}
