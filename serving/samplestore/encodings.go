// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"slices"
	"sync"
	"sync/atomic"
)

// maxEncodings is how many encodings of one thing are kept. Clients choose the
// names, and there may be tens of thousands of things: what is kept of each must
// not grow with what clients think of.
const maxEncodings = 2

// Encodings keeps the bytes of something immutable, by a name of the encoding:
// those of the first few names, each made once, however many ask for it at the
// same time. The zero value is ready for use and takes one word.
type Encodings struct {
	// made is replaced as a whole. There are so few that going through them is
	// the fastest way to find one.
	made atomic.Pointer[[]*encoded]
}

type encoded struct {
	name string
	// making is held by who makes the bytes.
	making sync.Mutex
	bytes  atomic.Pointer[[]byte]
}

// Encoded returns the bytes of an encoding, which encode makes on first use, or
// each time where enough others are kept. An error is not kept. The bytes are
// shared and must not be changed.
func (e *Encodings) Encoded(name string, encode func() ([]byte, error)) ([]byte, error) {
	found := e.find(name)
	if found == nil {
		return encode()
	}
	if b := found.bytes.Load(); b != nil {
		return *b, nil
	}
	found.making.Lock()
	defer found.making.Unlock()
	if b := found.bytes.Load(); b != nil {
		return *b, nil
	}
	b, err := encode()
	if err != nil {
		return nil, err
	}
	found.bytes.Store(&b)
	return b, nil
}

// find returns the encoding of a name, or nil where it is not one of those kept.
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
		if len(all) >= maxEncodings {
			return nil
		}
		one := &encoded{name: name}
		longer := append(slices.Clip(all), one)
		if e.made.CompareAndSwap(made, &longer) {
			return one
		}
	}
}
