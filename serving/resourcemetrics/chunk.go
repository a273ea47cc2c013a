// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"bytes"
	"io"
	"sync"
)

const (
	// chunkSize is large enough to make the costs of a write through the layers of
	// an HTTP server small, and small against what a list of a cluster takes.
	chunkSize = 64 << 10
	// chunkSpace is what the last object of a chunk usually fits into.
	chunkSpace = 4 << 10
	// maxPooled is the capacity up to which a buffer is used again: that of a chunk that has
	// grown once. Beyond it an object was very large.
	maxPooled = 2 * (chunkSize + chunkSpace)
)

var chunks = sync.Pool{New: func() any { return bytes.NewBuffer(make([]byte, 0, chunkSize+chunkSpace)) }}

// inChunks calls write with a buffer, and writes what is in it at the end. write calls
// writeChunk after each item.
func inChunks(w io.Writer, write func(chunk *bytes.Buffer) error) error {
	chunk := chunks.Get().(*bytes.Buffer)
	defer func() {
		if chunk.Cap() <= maxPooled {
			chunk.Reset()
			chunks.Put(chunk)
		}
	}()
	if err := write(chunk); err != nil {
		return err
	}
	_, err := chunk.WriteTo(w)
	return err
}

// writeChunk writes what is in the buffer if that is a chunk.
func writeChunk(w io.Writer, chunk *bytes.Buffer) error {
	if chunk.Len() < chunkSize {
		return nil
	}
	_, err := chunk.WriteTo(w)
	return err
}

// pooled returns a buffer for its pool, or nil if it has become too large.
func pooled(b []byte) []byte {
	if cap(b) > maxPooled {
		return nil
	}
	return b
}
