// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"slices"
	"sync"
	"sync/atomic"
)

// maxEncodings bounds the encodings cached per value. Clients choose the names,
// and there are tens of thousands of values.
const maxEncodings = 2

// Encodings caches the encoded forms of an immutable value by name: the first
// maxEncodings names, each encoded once also under concurrent calls. The zero
// value is ready for use and takes one word.
type Encodings struct {
	// cached is replaced, never changed. It is short enough for a linear search.
	cached atomic.Pointer[[]*encoded]
}

type encoded struct {
	name  string
	bytes lazy[[]byte]
}

// Encoded returns the bytes of the named encoding. It calls encode on first use,
// and each time once maxEncodings others are cached. Errors are not cached. The
// bytes are shared and must not be changed.
func (e *Encodings) Encoded(name string, encode func() ([]byte, error)) ([]byte, error) {
	found := e.find(name)
	if found == nil {
		return encode()
	}
	return found.bytes.get(encode)
}

// find returns the named encoding, adding it while there is room, or nil.
func (e *Encodings) find(name string) *encoded {
	for {
		cached := e.cached.Load()
		var all []*encoded
		if cached != nil {
			all = *cached
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
		if e.cached.CompareAndSwap(cached, &longer) {
			return one
		}
	}
}

// lazy is a value that is built on first use, once also under concurrent calls. The
// zero value is empty.
type lazy[T any] struct {
	value atomic.Pointer[T]
	// mu is held while the value is built.
	mu sync.Mutex
}

// get returns the value, which it builds if needed. An error is not stored.
func (l *lazy[T]) get(build func() (T, error)) (T, error) {
	if v := l.value.Load(); v != nil {
		return *v, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if v := l.value.Load(); v != nil {
		return *v, nil
	}
	v, err := build()
	if err == nil {
		l.value.Store(&v)
	}
	return v, err
}

// mustGet is get with a build that does not fail.
func (l *lazy[T]) mustGet(build func() T) T {
	v, _ := l.get(func() (T, error) { return build(), nil })
	return v
}

// reset drops the value. It must not run concurrently with get.
func (l *lazy[T]) reset() { l.value.Store(nil) }
