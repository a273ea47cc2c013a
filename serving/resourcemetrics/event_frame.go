// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"encoding/json"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// eventFrame is what a watch event has around the fragment of its data point, which all versions
// share. An event is a copy of a few hundred bytes.
type eventFrame struct {
	encoding samplestore.Encoding
	// before the fragment: in JSON all, in protobuf the type of the object.
	before []byte
}

// eventFrames returns the frames of a kind by the identifier that the API server's watch handler
// uses for ADDED events. Unknown identifiers (Table, metadata, CBOR, a changed handler) fall back
// to the handler's own encoding.
func eventFrames(kind string) map[runtime.Identifier]*eventFrame {
	frames := map[runtime.Identifier]*eventFrame{}
	for _, info := range codecs.SupportedMediaTypes() {
		if info.StreamSerializer == nil {
			continue
		}
		for _, version := range GroupVersions() {
			object := codecs.EncoderForVersion(info.Serializer, version)
			e, known := encoders[object.Identifier()]
			if !known {
				continue
			}
			event := codecs.EncoderForVersion(info.StreamSerializer.Serializer, version)
			frames[addedIdentifier(object, event)] = newEventFrame(e.encoding, version.WithKind(kind))
		}
	}
	return frames
}

// addedIdentifier returns the identifier of watchEncoder in k8s.io/apiserver/pkg/endpoints/handlers.
func addedIdentifier(object, event runtime.Encoder) runtime.Identifier {
	// Four strings always marshal.
	id, _ := json.Marshal(struct {
		Name            string `json:"name,omitempty"`
		EmbeddedEncoder string `json:"embeddedEncoder,omitempty"`
		Encoder         string `json:"encoder,omitempty"`
		EventType       string `json:"eventType,omitempty"`
	}{"watch", string(object.Identifier()), string(event.Identifier()), string(watch.Added)})
	return runtime.Identifier(id)
}

func newEventFrame(encoding samplestore.Encoding, gvk schema.GroupVersionKind) *eventFrame {
	f := &eventFrame{encoding: encoding}
	if encoding == samplestore.EncodingJSON {
		f.before = appendJSONKind([]byte(`{"type":"ADDED","object":{`), gvk)
		return f
	}
	f.before = appendStringField(nil, 1, gvk.GroupVersion().String())
	f.before = appendStringField(f.before, 2, gvk.Kind)
	return f
}

// append appends an event. The bytes equal those of the stock encoders, which event_test.go
// verifies.
func (f *eventFrame) append(b, fragment []byte) []byte {
	if f.encoding == samplestore.EncodingJSON {
		b = append(b, f.before...)
		b = append(b, fragment...)
		return append(b, '}', '\n')
	}
	// A WatchEvent of a type and a RawExtension, in which there is an object as
	// it is alone: the magic number and a runtime.Unknown. Sizes come first.
	unknown := fieldSize(len(f.before)) + fieldSize(len(fragment)) + 2*fieldSize(0)
	object := len(protobufMagic) + unknown
	b = appendStringField(b, 1, string(watch.Added))
	b = appendLength(b, 2, fieldSize(object))
	b = appendLength(b, 1, object)
	b = append(b, protobufMagic...)
	b = protowire.AppendBytes(append(b, bytesTag(1)), f.before)
	b = protowire.AppendBytes(append(b, bytesTag(2)), fragment)
	b = appendStringField(b, 3, "") // content encoding
	return appendStringField(b, 4, "")
}

// eventBuffer holds an event while it is written.
type eventBuffer struct{ b []byte }

var eventBuffers = sync.Pool{New: func() any { return &eventBuffer{b: make([]byte, 0, 2<<10)} }}

func putEventBuffer(event *eventBuffer) {
	event.b = pooled(event.b)
	eventBuffers.Put(event)
}
