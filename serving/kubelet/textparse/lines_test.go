// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package textparse

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadLinesErrors(t *testing.T) {
	const body = "node_cpu_usage_seconds_total 1\n"
	broken := errors.New("broken")
	tests := map[string]struct {
		reader io.Reader
		limit  int64
		want   error
	}{
		"as long as allowed": {strings.NewReader(body), int64(len(body)), nil},
		"longer":             {strings.NewReader(body), int64(len(body)) - 1, ErrTooLarge},
		"endless":            {endless{}, 1 << 20, ErrTooLarge},
		"breaks off":         {io.MultiReader(strings.NewReader(body), iotest.ErrReader(broken)), 1 << 20, broken},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := ReadLines(tt.reader, tt.limit, make([]byte, 64<<10), func([]byte) {}, func([]byte, bool) {})
			if !errors.Is(err, tt.want) {
				t.Errorf("ReadLines() = %v, want %v", err, tt.want)
			}
		})
	}
}

// endless is a body without end and without a newline.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// TestBodyIsNotHeld reads a body much larger than what may be allocated for it.
func TestBodyIsNotHeld(t *testing.T) {
	skipped, buf := 0, make([]byte, 64<<10)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := ReadLines(io.LimitReader(endless{}, 64<<20), 64<<20, buf, func([]byte) {}, func(_ []byte, truncated bool) {
		if truncated {
			t.Error("the long line was skipped as truncated")
		}
		skipped++
	})
	runtime.ReadMemStats(&after)
	if err != nil || skipped != 1 {
		t.Errorf("ReadLines() = %v, skipped %d lines, want 1", err, skipped)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 1<<20 {
		t.Errorf("%d bytes were allocated", allocated)
	}
}
