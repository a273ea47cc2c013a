// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package selectorresolver

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

const (
	// maxLists limits the lists at a time. API Priority and Fairness orders these, so they need no
	// rate limit.
	maxLists = 16
	// maxListsPerNamespace keeps one namespace from blocking the others.
	maxListsPerNamespace = 4
)

// gate limits concurrent lists.
type gate struct {
	all *semaphore.Weighted

	mu         sync.Mutex
	namespaces map[string]*namespaceGate
}

// namespaceGate limits the lists of a namespace. It exists while it has users, waiting ones
// included.
type namespaceGate struct {
	slots *semaphore.Weighted
	users int
}

func newGate() *gate {
	return &gate{all: semaphore.NewWeighted(maxLists), namespaces: map[string]*namespaceGate{}}
}

// enter waits for a slot, which leave releases. The error is that of the context.
func (g *gate) enter(ctx context.Context, namespace string) (leave func(), err error) {
	g.mu.Lock()
	s := g.namespaces[namespace]
	if s == nil {
		s = &namespaceGate{slots: semaphore.NewWeighted(maxListsPerNamespace)}
		g.namespaces[namespace] = s
	}
	s.users++
	g.mu.Unlock()
	forget := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if s.users--; s.users == 0 {
			delete(g.namespaces, namespace)
		}
	}
	// The namespace's first, so that no waiter holds a slot of all.
	if err := s.slots.Acquire(ctx, 1); err != nil {
		forget()
		return nil, err
	}
	if err := g.all.Acquire(ctx, 1); err != nil {
		s.slots.Release(1)
		forget()
		return nil, err
	}
	return func() {
		g.all.Release(1)
		s.slots.Release(1)
		forget()
	}, nil
}
