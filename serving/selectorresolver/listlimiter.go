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

// listLimiter limits concurrent lists.
type listLimiter struct {
	all *semaphore.Weighted

	mu         sync.Mutex
	namespaces map[string]*namespaceLists
}

// namespaceLists limits the lists of a namespace. It exists while it has users, waiting ones
// included.
type namespaceLists struct {
	slots *semaphore.Weighted
	users int
}

func newListLimiter() *listLimiter {
	return &listLimiter{all: semaphore.NewWeighted(maxLists), namespaces: map[string]*namespaceLists{}}
}

// acquire waits for a slot, which release frees. The error is that of the context.
func (l *listLimiter) acquire(ctx context.Context, namespace string) (release func(), err error) {
	l.mu.Lock()
	s := l.namespaces[namespace]
	if s == nil {
		s = &namespaceLists{slots: semaphore.NewWeighted(maxListsPerNamespace)}
		l.namespaces[namespace] = s
	}
	s.users++
	l.mu.Unlock()
	forget := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if s.users--; s.users == 0 {
			delete(l.namespaces, namespace)
		}
	}
	// The namespace's first, so that no waiter holds a slot of all.
	if err := s.slots.Acquire(ctx, 1); err != nil {
		forget()
		return nil, err
	}
	if err := l.all.Acquire(ctx, 1); err != nil {
		s.slots.Release(1)
		forget()
		return nil, err
	}
	return func() {
		l.all.Release(1)
		s.slots.Release(1)
		forget()
	}, nil
}
