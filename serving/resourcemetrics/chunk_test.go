// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"bytes"
	"io"
	"testing"
)

// TestChunkIsReused holds that a chunk is used again unless an object was very large.
func TestChunkIsReused(t *testing.T) {
	for name, test := range map[string]struct {
		object int
		reused bool
	}{
		"fits":       {chunkSpace, true},
		"grows once": {chunkSize, true},
		"very large": {3 * chunkSize, false},
	} {
		t.Run(name, func(t *testing.T) {
			before, object := make([]byte, chunkSize-1), make([]byte, test.object)
			write := func(chunk *bytes.Buffer) error {
				chunk.Write(before)
				chunk.Write(object)
				return nil
			}
			allocations := testing.AllocsPerRun(200, func() {
				if err := inChunks(io.Discard, write); err != nil {
					t.Fatal(err)
				}
			})
			// A new chunk that grows is three. With the race detector a sync.Pool drops a quarter of
			// what is put into it.
			if reused := allocations < 2; reused != test.reused {
				t.Errorf("%.0f allocations, want a chunk that is used again: %t", allocations, test.reused)
			}
		})
	}
}

// TestLargeBuffersAreDropped holds that no pool keeps the memory of a very large object.
func TestLargeBuffersAreDropped(t *testing.T) {
	for name, test := range map[string]struct{ size, want int }{
		"usual":      {chunkSize, chunkSize},
		"very large": {4 * chunkSize, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e, event := &jsonEncoder{compact: make([]byte, test.size)}, &eventBuffer{make([]byte, test.size)}
			putJSONEncoder(e)
			putEventBuffer(event)
			if cap(e.compact) != test.want || cap(event.b) != test.want {
				t.Errorf("kept %d and %d bytes, want %d", cap(e.compact), cap(event.b), test.want)
			}
		})
	}
}
