// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"bytes"
	"io"
	"iter"
	"strings"
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

// EncodeOnce implements an item's CacheEncode with the API server's own encoding. The bytes
// are cached with the data point and shared by all watchers of the same version and encoding,
// as long as these are few. object returns the event's object.
func EncodeOnce(cached *samplestore.Encodings, id runtime.Identifier, object func() runtime.Object,
	encode func(runtime.Object, io.Writer) error, w io.Writer,
) error {
	if isFirstTable(id) {
		return encode(object(), w)
	}
	event, err := cached.Encoded(string(id), func() ([]byte, error) {
		var event bytes.Buffer
		if err := encode(object(), &event); err != nil {
			return nil, err
		}
		// The buffer has spare capacity.
		return bytes.Clone(event.Bytes()), nil
	})
	if err != nil {
		return err
	}
	_, err = w.Write(event)
	return err
}

// isFirstTable reports whether an event is a Table with column definitions, as a client's first
// one is. The API server's watch handler omits them after it has encoded one itself, so such an
// event must not come from the cache.
func isFirstTable(id runtime.Identifier) bool {
	return strings.Contains(string(id), "Kind=Table") && !strings.Contains(string(id), "noHeaders")
}
