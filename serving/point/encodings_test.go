// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package point

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

func TestEncodings(t *testing.T) {
	var e Encodings
	broken := errors.New("broken")
	for range 2 {
		for _, test := range []struct {
			name string
			err  error
		}{{name: "json"}, {name: "protobuf"}, {name: "bad", err: broken}} {
			b, err := e.Encoded(test.name, func() ([]byte, error) { return []byte(test.name), test.err })
			if string(b) != test.name || !errors.Is(err, test.err) {
				t.Errorf("%s: %q, %v", test.name, b, err)
			}
		}
	}
}

// TestEncodingsOnce: one encode for each name, however many ask at once.
func TestEncodingsOnce(t *testing.T) {
	const names, readers = 4, 16
	var e Encodings
	var encodes [names]atomic.Int32
	var running sync.WaitGroup
	for range readers {
		running.Go(func() {
			for n := range names {
				b, err := e.Encoded(fmt.Sprint(n), func() ([]byte, error) {
					encodes[n].Add(1)
					return []byte{byte(n)}, nil
				})
				if err != nil || len(b) != 1 || b[0] != byte(n) {
					t.Errorf("%d: %v, %v", n, b, err)
				}
			}
		})
	}
	running.Wait()
	for n := range names {
		if got := encodes[n].Load(); got != 1 {
			t.Errorf("%d was encoded %d times", n, got)
		}
	}
}
