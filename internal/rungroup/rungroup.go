// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rungroup runs functions that are added before or while the group runs.
package rungroup

import (
	"context"
	"sync"
)

// Group runs functions in goroutines while Run runs. The zero value is ready to use.
type Group struct {
	mu sync.Mutex
	// ctx is that of Run; nil before it. Until then, added has the functions to start.
	ctx     context.Context
	added   []func(context.Context)
	running sync.WaitGroup
}

// Go starts f, or lets Run start it. The context of f ends when that of Run does, or soon
// after stop is called, which may be more than once. After that, f is not started anymore.
func (g *Group) Go(f func(context.Context)) (stop func()) {
	stopped, stop := context.WithCancel(context.Background())
	run := func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(stopped, cancel)()
		if stopped.Err() == nil {
			f(ctx)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx == nil {
		g.added = append(g.added, run)
	} else if ctx := g.ctx; ctx.Err() == nil {
		g.running.Go(func() { run(ctx) })
	}
	return stop
}

// Run starts the functions and returns when its context and all of them have ended. It may
// be called once.
func (g *Group) Run(ctx context.Context) {
	g.mu.Lock()
	g.ctx = ctx
	for _, run := range g.added {
		g.running.Go(func() { run(ctx) })
	}
	g.added = nil
	g.mu.Unlock()
	<-ctx.Done()
	// Wait requires that none is started meanwhile: Go holds mu while it starts one, and
	// starts none after this.
	g.mu.Lock()
	g.mu.Unlock() //nolint:staticcheck // Waits for Go.
	g.running.Wait()
}
