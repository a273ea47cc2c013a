// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// Mode tells how a Watcher comes by its data points.
type Mode string

const (
	// Starting means that there was no answer of the API yet, or it went away.
	Starting Mode = "Starting"
	// Watching means by watch, or between two watches.
	Watching Mode = "Watching"
	// Polling means by lists, until a watch brings data points.
	Polling Mode = "Polling"
)

// Status tells how a Watcher fares.
type Status struct {
	// Version of the API that is in use; empty before the first answer of discovery, and while it is chosen anew.
	Version string
	Mode    Mode
	// PollingReason is why the API is polled where it could be watched; nil unless Mode is Polling.
	PollingReason error
	// Synced: a complete list was taken in once.
	Synced bool
	// LastContact is when the server last sent something that could be read, on our clock. A bookmark counts.
	LastContact time.Time
	// Err is the last thing that went wrong; nil once something went right again.
	Err error
}

// Watcher keeps the newest data point of each object. Its methods may be called from several goroutines.
type Watcher[T any] struct {
	options Options
	points  *points[T]
	feed    *feed[T]
	inUse   atomic.Bool // by Sync, or by Run, which keeps it
	synced  chan struct{}

	mu     sync.Mutex
	status Status

	course[T]
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
	feed := newFeed[T]()
	return &Watcher[T]{
		options: options,
		feed:    feed,
		points: &points[T]{
			key: api.key, sample: api.sample, maxAge: options.MaxAge, feed: feed,
			entries: map[string]*entry[T]{}, within: map[string]map[string]*entry[T]{},
		},
		synced: make(chan struct{}),
		status: Status{Mode: Starting},
		course: newCourse(c, api),
	}, nil
}

var errInUse = errors.New("this Watcher is being run, or was: make a new one")

// Run keeps the snapshot up to date until ctx ends, whatever the server does; Status tells of errors. It can be called
// once, and returns an error only for a second call.
func (w *Watcher[T]) Run(ctx context.Context) error {
	if !w.inUse.CompareAndSwap(false, true) {
		return errInUse
	}
	var feeding sync.WaitGroup
	feeding.Go(func() { w.feed.run(ctx) })
	defer feeding.Wait()
	for ctx.Err() == nil {
		w.sleep(ctx, w.step(ctx))
	}
	return nil
}

// Sync takes the first list now, with one try, for programs that would rather fail than wait. Call it before Run, which
// goes on from there, or without Run to read metrics once. Errors of the server are those of
// k8s.io/apimachinery/pkg/api/errors, wrapped; where no version has the resource, errors.Is(err, ErrNotServed).
func (w *Watcher[T]) Sync(ctx context.Context) error {
	if !w.inUse.CompareAndSwap(false, true) {
		return errInUse
	}
	defer w.inUse.Store(false)
	if err := w.negotiate(ctx); err != nil {
		return err
	}
	if err := w.list(ctx); err != nil {
		return err
	}
	w.renegotiate = w.now().Add(w.options.jitter(w.options.RetryWatch))
	w.listed()
	return nil
}

// Snapshot returns the objects that were renewed within MaxAge, by namespace and name. They are shared: do not change
// them.
func (w *Watcher[T]) Snapshot() []*T { return w.points.snapshot("", w.options.Clock.Now()) }

// List is Snapshot of one namespace, and costs no more than that has objects; empty for all.
func (w *Watcher[T]) List(namespace string) []*T {
	return w.points.snapshot(namespace, w.options.Clock.Now())
}

// Changes returns the channel of changes, the same at each call, closed when Run returns. A slow reader misses
// data points in between, never the newest one, and holds up nobody. Need not be read.
func (w *Watcher[T]) Changes() <-chan Change[T] { return w.feed.out }

// Status tells the version and the mode in use, and what went wrong last.
func (w *Watcher[T]) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// WaitForSync returns when the first complete list was taken in, or with an error that tells what kept it when ctx
// ends.
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
		w.status.PollingReason = w.whyPolling()
	}
}

func (w *Watcher[T]) setContact(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.LastContact = now
}

func (w *Watcher[T]) now() time.Time { return w.options.Clock.Now() }
