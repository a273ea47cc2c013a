// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lru caches what was used last, bounded by the number of entries and by their size.
package lru

import (
	"sync"

	"k8s.io/utils/lru"
)

// Cache keeps the entries that were used last. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	maxEntries, maxSize int
	sizeOf              func(K, V) int

	mu      sync.Mutex
	entries *lru.Cache
	size    int
}

// New returns a cache of at most maxEntries, which together have at most maxSize by sizeOf.
func New[K comparable, V any](maxEntries, maxSize int, sizeOf func(K, V) int) *Cache[K, V] {
	c := &Cache[K, V]{maxEntries: maxEntries, maxSize: maxSize, sizeOf: sizeOf}
	c.Clear()
	return c
}

// Get returns the value of a key, and whether there is one.
func (c *Cache[K, V]) Get(k K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.entries.Get(k)
	value, _ := v.(V)
	return value, ok
}

// Add sets the value of a key. An entry of more than a tenth of the maximum size is not kept.
func (c *Cache[K, V]) Add(k K, v V) {
	size := c.sizeOf(k, v)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Remove(k) // adding a known key would evict nothing
	if size > c.maxSize/10 {
		return
	}
	c.entries.Add(k, v)
	c.size += size
	for c.size > c.maxSize {
		c.entries.RemoveOldest()
	}
}

// Len returns the number of entries.
func (c *Cache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries.Len()
}

// Clear removes all entries.
func (c *Cache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.size = 0
	c.entries = lru.NewWithEvictionFunc(c.maxEntries, func(k lru.Key, v any) {
		c.size -= c.sizeOf(k.(K), v.(V)) //nolint:forcetypeassert // Add adds no others
	})
}
