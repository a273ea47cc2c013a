// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// Mode is how a Watcher gets its data points.
type Mode string

const (
	// Starting means that the API has not answered yet, or no longer answers.
	Starting Mode = "Starting"
	// Watching means by watch, or that the next watch is about to be opened.
	Watching Mode = "Watching"
	// Polling means by lists, until a watch delivers data points.
	Polling Mode = "Polling"
)

// Status is the state of a Watcher.
type Status struct {
	// Version of the API in use; empty until discovery has chosen one.
	Version string
	Mode    Mode
	// PollingReason is why the API is polled and not watched. It is nil unless Mode is Polling.
	PollingReason error
	// Synced is true once a complete list was received.
	Synced bool
	// LastContact is when the server last sent something valid, if only a bookmark, by the client's clock.
	LastContact time.Time
	// Err is the last error, or nil if a request has succeeded since.
	Err error
}

// Watcher keeps the newest data point of each object. Its methods are safe for concurrent use.
type Watcher[T any] struct {
	options Options
	api     api[T]
	rest    rest.Interface
	store   *store[T]
	inUse   atomic.Bool // set during Sync, and for good by Run
	synced  chan struct{}

	mu     sync.Mutex
	status Status

	runState
}

func newWatcher[T any](config *rest.Config, options Options, api api[T]) (*Watcher[T], error) {
	options, err := options.complete()
	if err != nil {
		return nil, err
	}
	c, err := newRESTClient(config)
	if err != nil {
		return nil, err
	}
	return &Watcher[T]{
		options:  options,
		api:      api,
		rest:     c,
		store:    newStore(api, options.MaxAge),
		synced:   make(chan struct{}),
		status:   Status{Mode: Starting},
		runState: runState{listNeeded: true, watchBackoff: newBackoff(), listBackoff: newBackoff()},
	}, nil
}

// Run keeps the snapshot up to date until ctx ends. It retries all errors of the server, and reports them in Status. It
// can be called once, and returns an error only for a second call.
func (w *Watcher[T]) Run(ctx context.Context) error {
	if !w.inUse.CompareAndSwap(false, true) {
		return errInUse
	}
	var changes sync.WaitGroup
	changes.Go(func() { w.store.changes.run(ctx) })
	defer changes.Wait()
	for ctx.Err() == nil {
		w.sleep(ctx, w.step(ctx))
	}
	return nil
}

// Sync fetches the first list now, without retries, for programs that should fail rather than wait. Call it before Run,
// which continues from there, or without Run to read metrics once. It wraps the server's errors, which
// k8s.io/apimachinery/pkg/api/errors can tell apart; if no version has the resource, the error wraps ErrNotServed.
func (w *Watcher[T]) Sync(ctx context.Context) error {
	if !w.inUse.CompareAndSwap(false, true) {
		return errInUse
	}
	defer w.inUse.Store(false)
	if err := w.discover(ctx); err != nil {
		return err
	}
	if err := w.list(ctx); err != nil {
		return err
	}
	w.rediscoverAt = w.now().Add(w.options.jitter(w.options.RetryWatch))
	w.listSucceeded()
	return nil
}

// Snapshot returns the objects that were renewed within MaxAge, ordered by namespace and name. They are shared: do not
// modify them.
func (w *Watcher[T]) Snapshot() []*T { return w.List("") }

// List is Snapshot for one namespace, at a cost proportional to its objects. An empty namespace means all.
func (w *Watcher[T]) List(namespace string) []*T { return w.store.snapshot(namespace, w.now()) }

// Changes returns the channel of changes, the same on each call. Run closes it when it returns. A slow reader misses
// intermediate data points but never the newest, and blocks nothing; the channel need not be read.
func (w *Watcher[T]) Changes() <-chan Change[T] { return w.store.changes.out }

// Status returns the version and the mode in use, and the last error.
func (w *Watcher[T]) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// WaitForSync returns nil once the first complete list was received. If ctx ends before, the error includes the last
// error of the server.
func (w *Watcher[T]) WaitForSync(ctx context.Context) error {
	select {
	case <-w.synced:
		return nil
	case <-ctx.Done():
		if err := w.Status().Err; err != nil {
			return fmt.Errorf("waiting for the first list of metrics: %w: %w", ctx.Err(), err)
		}
		return fmt.Errorf("waiting for the first list of metrics: %w", ctx.Err())
	}
}

func (w *Watcher[T]) setSynced() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.status.Synced {
		w.status.Synced = true
		close(w.synced)
	}
}

func (w *Watcher[T]) setStatus(mode Mode, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Version, w.status.Mode, w.status.Err = w.version, mode, err
	w.status.PollingReason = nil
	if mode == Polling {
		w.status.PollingReason = w.pollingReason()
	}
}

func (w *Watcher[T]) setContact(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.LastContact = now
}

func (w *Watcher[T]) now() time.Time { return w.options.Clock.Now() }
