// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// These functions read as little of a list as possible: this program shares the processors
// with the process that it measures.

// countJSON returns the number of NodeMetrics or PodMetrics in JSON, pretty-printed or not.
// Only they have a window.
func countJSON(body []byte) (int, error) { return bytes.Count(body, []byte(`"window":`)), nil }

// countTable returns the number of rows of a Table in JSON.
func countTable(body []byte) (int, error) { return bytes.Count(body, []byte(`"cells":`)), nil }

// countGzip returns the number of objects in compressed JSON. API servers do not compress
// bodies of less than 128 KiB.
func countGzip(body []byte) (int, error) {
	if bytes.HasPrefix(body, []byte("{")) {
		return countJSON(body)
	}
	reader, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("decompress a list: %w", err)
	}
	plain, err := io.ReadAll(reader)
	if err != nil {
		return 0, fmt.Errorf("decompress a list: %w", err)
	}
	return countJSON(plain)
}

// countProtobuf returns the number of objects of a list in protobuf.
func countProtobuf(body []byte) (int, error) {
	n := 0
	err := eachTimestamp(body, func(time.Time) { n++ })
	return n, err
}

// podName names a pod.
type podName struct{ namespace, name string }

// countListed returns how many of the objects of a PodMetricsList in protobuf are in a set.
func countListed(body []byte, set map[podName]bool) (int, error) {
	n := 0
	err := eachItem(body, func(item []byte) error {
		return eachField(item, metadataField, func(metadata []byte) error {
			var key podName
			into := func(to *string) func([]byte) error {
				return func(b []byte) error { *to = string(b); return nil }
			}
			if err := eachField(metadata, namespaceField, into(&key.namespace)); err != nil {
				return err
			}
			if err := eachField(metadata, nameField, into(&key.name)); err != nil {
				return err
			}
			if set[key] {
				n++
			}
			return nil
		})
	})
	return n, err
}

// Numbers of fields: raw of runtime.Unknown, items of a list, metadata and timestamp of
// NodeMetrics and PodMetrics, name and namespace of ObjectMeta, seconds of a Time.
const (
	rawField       = 2
	itemsField     = 2
	metadataField  = 1
	timestampField = 2
	nameField      = 1
	namespaceField = 3
	secondsField   = 1
)

// protobufPrefix begins each object of Kubernetes in protobuf; a runtime.Unknown follows.
var protobufPrefix = []byte("k8s\x00")

// eachTimestamp calls a function with the timestamp of each object of a NodeMetricsList or a
// PodMetricsList in protobuf. The API encodes whole seconds.
func eachTimestamp(body []byte, visit func(time.Time)) error {
	return eachItem(body, func(item []byte) error {
		return eachField(item, timestampField, func(timestamp []byte) error {
			seconds, err := varint(timestamp, secondsField)
			visit(time.Unix(seconds, 0))
			return err
		})
	})
}

// eachItem calls a function with each object of a list in protobuf.
func eachItem(body []byte, visit func([]byte) error) error {
	unknown, ok := bytes.CutPrefix(body, protobufPrefix)
	if !ok {
		return fmt.Errorf("read a list in protobuf: it begins with %q", body[:min(len(body), 40)])
	}
	err := eachField(unknown, rawField, func(list []byte) error { return eachField(list, itemsField, visit) })
	if err != nil {
		return fmt.Errorf("read a list in protobuf: %w", err)
	}
	return nil
}

// eachField calls a function with each value of a length-delimited field of a message.
func eachField(message []byte, field protowire.Number, visit func([]byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if number != field || kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
				return protowire.ParseError(n)
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := visit(value); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}

// varint returns a numeric field of a message.
func varint(message []byte, field protowire.Number) (int64, error) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		message = message[n:]
		if number == field && kind == protowire.VarintType {
			value, n := protowire.ConsumeVarint(message)
			if n < 0 {
				return 0, protowire.ParseError(n)
			}
			return int64(value), nil
		}
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return 0, protowire.ParseError(n)
		}
		message = message[n:]
	}
	return 0, errors.New("a timestamp has no seconds")
}
