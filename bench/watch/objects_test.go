// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"
)

func TestNextObject(t *testing.T) {
	const list = `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1","metadata":{},"items":[` +
		`{"metadata":{"name":"a-1","namespace":"x","resourceVersion":"1700000000123","creationTimestamp":"2023-11-14T22:13:20Z"},"containers":[{"name":"app"}]},` +
		`{"metadata":{"name":"b-2","namespace":"y","resourceVersion":"1700000000999"},"containers":[]}]}`
	var got []string
	var last object
	rest := []byte(list)
	for {
		o, after, ok := nextObject(rest)
		if !ok {
			break
		}
		got, last, rest = append(got, string(o.namespace)+"/"+string(o.name)), o, after
	}
	if want := []string{"x/a-1", "y/b-2"}; !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	if last.sample.UnixMilli() != 1700000000999 {
		t.Errorf("sample at %v", last.sample)
	}
	for _, broken := range []string{
		``, `{}`, `"metadata":{"name":"a`, `"metadata":{"name":"a","namespace":"b`,
		`"metadata":{"name":"a","namespace":"b","resourceVersion":"1`, `"metadata":{"name":"a","namespace":"b","resourceVersion":"one"}`,
	} {
		if _, _, ok := nextObject([]byte(broken)); ok {
			t.Errorf("an object in %q", broken)
		}
	}
}

func TestLines(t *testing.T) {
	const text = "one\ntwo\n\nfour"
	for size := 1; size <= len(text); size++ {
		var l lines
		var got []string
		for piece := range slices.Chunk([]byte(text), size) {
			l.add(piece, func(line []byte) { got = append(got, string(line)) })
		}
		if want := []string{"one", "two", ""}; !slices.Equal(got, want) || string(l.partial) != "four" {
			t.Errorf("in pieces of %d: %q and %q", size, got, l.partial)
		}
	}
}
