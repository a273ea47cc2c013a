// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strconv"
	"time"
)

// These functions read single fields of an object from its JSON, since decoding hundreds of
// thousands of objects would cost more than serving them. The API's own encoding is fixed:
// metadata begins with name, namespace and resourceVersion.
var (
	metadataBegin  = []byte(`"metadata":{"name":"`)
	namespaceBegin = []byte(`","namespace":"`)
	versionBegin   = []byte(`","resourceVersion":"`)
	bookmark       = []byte(`{"type":"BOOKMARK"`)
	added          = []byte(`{"type":"ADDED"`)
	timestamp      = []byte(`"timestamp":"`)
	initialEnd     = []byte(`"k8s.io/initial-events-end":"true"`)
)

// object is a data point as a client sees it.
type object struct {
	// namespace and name are slices of the input.
	namespace, name []byte
	// sample is the time of the newest sample: the resourceVersion.
	sample time.Time
}

// nextObject reads the first object in text and returns what comes after.
func nextObject(text []byte) (o object, rest []byte, ok bool) {
	_, rest, ok = bytes.Cut(text, metadataBegin)
	if !ok {
		return o, nil, false
	}
	if o.name, rest, ok = bytes.Cut(rest, namespaceBegin); !ok {
		return o, nil, false
	}
	if o.namespace, rest, ok = bytes.Cut(rest, versionBegin); !ok {
		return o, nil, false
	}
	end := bytes.IndexByte(rest, '"')
	if end < 0 {
		return o, nil, false
	}
	version, err := strconv.ParseInt(string(rest[:end]), 10, 64)
	if err != nil {
		return o, nil, false
	}
	o.sample = time.UnixMilli(version)
	return o, rest[end:], true
}

// lines splits a stream that arrives in pieces into lines.
type lines struct{ partial []byte }

// add passes on each line that the piece completes.
func (l *lines) add(piece []byte, line func([]byte)) {
	for {
		end := bytes.IndexByte(piece, '\n')
		if end < 0 {
			l.partial = append(l.partial, piece...)
			return
		}
		if len(l.partial) > 0 {
			l.partial = append(l.partial, piece[:end]...)
			line(l.partial)
			l.partial = l.partial[:0]
		} else {
			line(piece[:end])
		}
		piece = piece[end+1:]
	}
}
