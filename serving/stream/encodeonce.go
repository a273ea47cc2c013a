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

// EncodeOnce writes the event of an item as the API server encodes it, for its
// CacheEncode: once for all watchers that ask for the same version and encoding, as
// long as these are few, and kept with the data point. object makes the event's object.
func EncodeOnce(kept *samplestore.Encodings, id runtime.Identifier, object func() runtime.Object,
	encode func(runtime.Object, io.Writer) error, w io.Writer,
) error {
	if beginsTable(id) {
		return encode(object(), w)
	}
	event, err := kept.Encoded(string(id), func() ([]byte, error) {
		var event bytes.Buffer
		if err := encode(object(), &event); err != nil {
			return nil, err
		}
		// Of its exact size, unlike the buffer.
		return bytes.Clone(event.Bytes()), nil
	})
	if err != nil {
		return err
	}
	_, err = w.Write(event)
	return err
}

// beginsTable says that an event is to have a Table with the definitions of its
// columns, as a client's first one has. The API server's watch handler leaves them
// out after it encoded one itself, so such an event must not come from elsewhere.
func beginsTable(id runtime.Identifier) bool {
	return strings.Contains(string(id), "Kind=Table") && !strings.Contains(string(id), "noHeaders")
}
