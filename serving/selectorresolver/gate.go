// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package selectorresolver

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

const (
	// lists is how many lists are under way at a time: kube-apiserver's own fairness
	// decides about these, and they are not queued behind a rate of ours.
	lists = 16
	// listsByNamespace is how many of them are of one namespace, so that who selects in one
	// does not keep others waiting.
	listsByNamespace = 4
)

// gate bounds the lists that are under way.
type gate struct {
	all *semaphore.Weighted

	mu     sync.Mutex
	shares map[string]*share
}

// share is that of a namespace; it is there while somebody has or waits for some of it.
type share struct {
	places *semaphore.Weighted
	users  int
}

func newGate() *gate {
	return &gate{all: semaphore.NewWeighted(lists), shares: map[string]*share{}}
}

// enter waits for a place, which leave gives back. The error is that of the context.
func (g *gate) enter(ctx context.Context, namespace string) (leave func(), err error) {
	g.mu.Lock()
	s := g.shares[namespace]
	if s == nil {
		s = &share{places: semaphore.NewWeighted(listsByNamespace)}
		g.shares[namespace] = s
	}
	s.users++
	g.mu.Unlock()
	forget := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if s.users--; s.users == 0 {
			delete(g.shares, namespace)
		}
	}
	// The namespace's first: who waits for it has no place of all.
	if err := s.places.Acquire(ctx, 1); err != nil {
		forget()
		return nil, err
	}
	if err := g.all.Acquire(ctx, 1); err != nil {
		s.places.Release(1)
		forget()
		return nil, err
	}
	return func() {
		g.all.Release(1)
		s.places.Release(1)
		forget()
	}, nil
}
