// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"errors"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// encoder is an encoder of the API group whose bytes fragments add up to.
type encoder struct {
	version  schema.GroupVersion
	encoding samplestore.Encoding
	// pretty JSON has a line for each value.
	pretty bool
}

// encoders holds those encoders by the identifier that they give themselves, so
// that whatever is not known for certain (YAML, CBOR, a changed serializer)
// falls back to the encoder itself.
var encoders = knownEncoders()

func knownEncoders() map[runtime.Identifier]encoder {
	known := map[runtime.Identifier]encoder{}
	for _, info := range codecs.SupportedMediaTypes() {
		var encoding samplestore.Encoding
		switch info.MediaType {
		case runtime.ContentTypeJSON:
			encoding = samplestore.EncodingJSON
		case runtime.ContentTypeProtobuf:
			encoding = samplestore.EncodingProtobuf
		default:
			continue
		}
		for _, version := range GroupVersions() {
			id := codecs.EncoderForVersion(info.Serializer, version).Identifier()
			known[id] = encoder{version: version, encoding: encoding}
			if info.PrettySerializer != nil {
				id := codecs.EncoderForVersion(info.PrettySerializer, version).Identifier()
				known[id] = encoder{version: version, encoding: encoding, pretty: true}
			}
		}
	}
	return known
}

// CacheEncode writes the object as the encoder of that identifier would.
func (o *object) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	e, known := encoders[id]
	switch {
	case !known:
		return encode(o.GetObject(), w)
	case e.encoding == samplestore.EncodingProtobuf:
		return o.writeProtobuf(w, e.version.WithKind(o.kind.name))
	default:
		return o.writeJSON(w, e.version.WithKind(o.kind.name), e.pretty)
	}
}

// CacheEncode writes the list, or a Table of it, as the encoder of that identifier would, item by
// item: no buffer ever holds more than a chunk of it.
func (l *list) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	e, known := encoders[id]
	switch {
	case l.table != nil && known && e.encoding == samplestore.EncodingJSON:
		return l.writeTable(w, e.version, e.pretty)
	case l.table != nil:
		return errors.New("write a list as a Table: not possible in this encoding, only in JSON")
	case !known:
		return encode(l.GetObject(), w)
	case e.encoding == samplestore.EncodingProtobuf:
		return l.writeProtobuf(w, e.version.WithKind(l.kind.name+"List"))
	default:
		return l.writeJSON(w, e.version.WithKind(l.kind.name+"List"), e.pretty)
	}
}
