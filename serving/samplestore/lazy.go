// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"sync"
	"sync/atomic"
)

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
