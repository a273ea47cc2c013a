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

// Item is a data point in a hub. It is immutable.
type Item interface {
	ItemKey() samplestore.Key
	ItemLabels() map[string]string
	// ItemSequence returns the number of the data point: those of a source are numbered from 1
	// in the order in which they were stored. A change of metadata does not change it.
	ItemSequence() uint64
	// CacheEncode writes the encoded event like a runtime.CacheableObject, and should cache the
	// bytes. It must call Write once, since a framer makes a frame of each call.
	CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error
}

// Source holds the newest data point of each key.
type Source interface {
	// Sequence returns the number of the newest point. All points up to it are visible in Get
	// and Select, and it is never less than that of a point that was returned by them.
	Sequence() uint64
	// Get returns the newest point of a key, or nil.
	Get(samplestore.Key) Item
	// Stored returns when the point of a number was stored.
	Stored(sequence uint64) time.Time
	// Select yields points in the order of their keys, starting after a key, of one namespace
	// or, if namespace is empty, of all. It may leave out those that lack a required label.
	Select(namespace string, required []samplestore.Label, after samplestore.Key) iter.Seq[Item]
}
