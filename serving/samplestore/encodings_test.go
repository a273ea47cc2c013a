// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// TestEncodings asks for encodings one after the other: which bytes come, and
// whether they had to be made.
func TestEncodings(t *testing.T) {
	type ask struct {
		name string
		// breaks says that the encoding does not work this time.
		breaks bool
		// made says that it was called.
		made bool
	}
	tests := map[string][]ask{
		"each once":          {{name: "a", made: true}, {name: "b", made: true}, {name: "a"}, {name: "b"}},
		"an error is no end": {{name: "a", breaks: true, made: true}, {name: "a", breaks: true, made: true}, {name: "a", made: true}, {name: "a"}},
		"no more than two are kept": {
			{name: "a", made: true}, {name: "b", made: true},
			{name: "c", made: true}, {name: "c", made: true}, {name: "c", breaks: true, made: true}, {name: "a"}, {name: "b"},
		},
	}
	broken := errors.New("broken")
	for name, asks := range tests {
		t.Run(name, func(t *testing.T) {
			var e Encodings
			for i, ask := range asks {
				made, want, wantErr := false, ask.name, error(nil)
				if ask.breaks {
					want, wantErr = "", broken
				}
				b, err := e.Encoded(ask.name, func() ([]byte, error) {
					made = true
					return []byte(want), wantErr
				})
				if string(b) != want || !errors.Is(err, wantErr) || made != ask.made {
					t.Errorf("%d, %s: %q, %v, made: %t", i, ask.name, b, err, made)
				}
			}
		})
	}
}

// TestEncodingsOnce: one encode for each name, however many ask at once.
func TestEncodingsOnce(t *testing.T) {
	const names, readers = maxEncodings, 16
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
