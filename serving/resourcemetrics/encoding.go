// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// encoder is an encoder of the API group whose bytes fragments add up to.
type encoder struct {
	version  schema.GroupVersion
	encoding samplestore.Encoding
}

// encoders holds those encoders by the identifier that they give themselves, so
// that whatever is not known for certain (pretty JSON, YAML, CBOR, a changed
// serializer) falls back to the encoder itself.
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
		}
	}
	return known
}

// CacheEncode writes the object as the encoder of that identifier would.
func (o *object) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	e, known := encoders[id]
	if !known {
		return encode(o.GetObject(), w)
	}
	fragment, err := o.fragment(e.encoding)
	if err != nil {
		return err
	}
	gvk := e.version.WithKind(o.kind.name)
	return inChunks(w, func(w *chunkWriter) error {
		if e.encoding == samplestore.EncodingProtobuf {
			return writeProtobufObject(w, gvk, fragment)
		}
		writeJSONObject(w, gvk, fragment)
		return nil
	})
}

// CacheEncode writes the list as the encoder of that identifier would, item by
// item: no buffer ever holds more than a chunk of it.
func (l *list) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	e, known := encoders[id]
	if !known {
		return encode(l.GetObject(), w)
	}
	gvk := e.version.WithKind(l.kind.name + "List")
	if e.encoding == samplestore.EncodingProtobuf {
		return l.writeProtobuf(w, gvk)
	}
	return l.writeJSON(w, gvk)
}

// fragment returns the object as it is written inside of a list: without kind
// and apiVersion, which differ between versions. It is made once per data point.
func (o *object) fragment(encoding samplestore.Encoding) ([]byte, error) {
	return o.point.Encoded(encoding, o.kind.fragments[encoding])
}

// scratch holds a fragment while it is made, so that what is kept of it has its
// exact size.
type scratch struct{ buf []byte }

var scratches = sync.Pool{New: func() any { return &scratch{buf: make([]byte, 4<<10)} }}

// chunkSize is large enough to make the costs of a write through the layers of
// an HTTP server small, and small against what a list of a cluster takes.
const chunkSize = 64 << 10

// chunkWriter collects chunks for another writer. It keeps the first error, and
// writes nothing after it.
type chunkWriter struct {
	w   io.Writer
	buf []byte
	err error
}

var chunkWriters = sync.Pool{New: func() any { return &chunkWriter{buf: make([]byte, 0, chunkSize)} }}

// inChunks runs write on a writer that collects chunks for w.
func inChunks(w io.Writer, write func(*chunkWriter) error) error {
	c := chunkWriters.Get().(*chunkWriter)
	c.w = w
	defer func() {
		c.w, c.buf, c.err = nil, c.buf[:0], nil
		chunkWriters.Put(c)
	}()
	if err := write(c); err != nil {
		return err
	}
	c.flush()
	return c.err
}

// room makes room for n bytes, for n up to chunkSize.
func (c *chunkWriter) room(n int) {
	if len(c.buf)+n > cap(c.buf) {
		c.flush()
	}
}

func (c *chunkWriter) add(p []byte) {
	c.room(len(p))
	if len(p) > cap(c.buf) {
		c.put(p)
		return
	}
	c.buf = append(c.buf, p...)
}

func (c *chunkWriter) addString(s string) {
	c.room(len(s))
	c.buf = append(c.buf, s...)
}

func (c *chunkWriter) flush() {
	if len(c.buf) > 0 {
		c.put(c.buf)
		c.buf = c.buf[:0]
	}
}

func (c *chunkWriter) put(p []byte) {
	if c.err == nil {
		_, c.err = c.w.Write(p)
	}
}

// Write makes a chunkWriter an io.Writer.
func (c *chunkWriter) Write(p []byte) (int, error) {
	c.add(p)
	return len(p), c.err
}
