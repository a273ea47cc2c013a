// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"bytes"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

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
