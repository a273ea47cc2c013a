// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"io"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// Item is a data point as a hub sees it. It is immutable.
type Item interface {
	ItemKey() samplestore.Key
	ItemLabels() map[string]string
	// ItemSequence numbers the data points of a source in the order in which
	// they were stored, from 1. It changes with the data point alone, not with
	// metadata.
	ItemSequence() uint64
	// CacheEncode is that of a runtime.CacheableObject: it writes the bytes of
	// the event that the identifier stands for, in one call of Write, since a
	// framer makes a frame of each. It should keep and share them.
	CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error
}

// Source holds the newest data point of each key.
type Source interface {
	// Sequence is the number of the newest point. Points up to that number are
	// visible in Get and Select; of a point that was seen there it is never short.
	Sequence() uint64
	// Get returns the newest point of a key, or nil where there is none to serve.
	Get(samplestore.Key) Item
	// Stored returns when the point of a number was stored.
	Stored(sequence uint64) time.Time
	// Select yields the points ordered by key, beginning after a key (the zero Key:
	// from the start), of one namespace or, where namespace is empty, of all. Those
	// that do not have all of the labels may be left out.
	Select(namespace string, required []samplestore.Label, after samplestore.Key) iter.Seq[Item]
}
