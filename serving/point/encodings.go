// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package point

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Encodings keeps the bytes of something immutable, by a name of the encoding.
// Each is made once, however many ask for it at the same time. The zero value is
// ready for use and takes one word.
type Encodings struct {
	// made is replaced as a whole. There are so few that going through them is
	// the fastest way to find one.
	made atomic.Pointer[[]*encoded]
}

type encoded struct {
	name  string
	once  sync.Once
	bytes []byte
	err   error
}

// Encoded returns the bytes of an encoding, which encode makes on first use. Its
// error is kept as well. The bytes are shared and must not be changed.
func (e *Encodings) Encoded(name string, encode func() ([]byte, error)) ([]byte, error) {
	found := e.find(name)
	found.once.Do(func() { found.bytes, found.err = encode() })
	return found.bytes, found.err
}

func (e *Encodings) find(name string) *encoded {
	for {
		made := e.made.Load()
		var all []*encoded
		if made != nil {
			all = *made
		}
		for _, one := range all {
			if one.name == name {
				return one
			}
		}
		one := &encoded{name: name}
		longer := append(slices.Clip(all), one)
		if e.made.CompareAndSwap(made, &longer) {
			return one
		}
	}
}
