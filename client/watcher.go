// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
	// maxRetryAfter bounds what a server can ask for between two lists.
	maxRetryAfter = 5 * time.Minute
	// stable is how long a stream lasts that is no trouble. kube-apiserver cuts `?watch=true` on custom metrics after
	// 60 s, so it must be less.
	stable = 30 * time.Second
	// troubleBeforePolling is how long watching may go wrong before polling takes over.
	troubleBeforePolling = time.Minute
)

// Mode tells how a Watcher comes by its data points.
type Mode string

const (
	// Starting means that there was no answer of the API yet, or it went away.
	Starting Mode = "Starting"
	// Watching means by watch, or between two watches.
	Watching Mode = "Watching"
	// Polling means by lists, until a watch can be tried again.
	Polling Mode = "Polling"
)

// Status tells how a Watcher fares.
type Status struct {
	// Version of the API that is in use; empty before the first answer of discovery, and while it is chosen anew.
	Version string
	Mode    Mode
	// Synced: a complete list was taken in once.
	Synced bool
	// Err is the last thing that went wrong; nil once something went right again.
	Err error
}

// Watcher keeps the newest data point of each object. Its methods may be called from several goroutines.
type Watcher[T any] struct {
	api     api[T]
	options Options
	rest    rest.Interface
	points  *points[T]
	feed    *feed[T]
	started atomic.Bool
	synced  chan struct{}

	mu     sync.Mutex
	status Status

	// The rest belongs to Run's goroutine.
	version      string
	served       bool      // discovery names the watch verb
	renegotiate  time.Time // when to ask discovery again
	refusedUntil time.Time // no watch before that
	listNeeded   bool
	troubleSince time.Time // the first of a row of streams that went wrong; zero without
	watchBackoff wait.Backoff
	listBackoff  wait.Backoff
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
		api:     api,
		options: options,
		rest:    c,
		feed:    feed,
		points: &points[T]{
			key: api.key, sample: api.sample, maxAge: options.MaxAge, feed: feed, entries: map[string]*entry[T]{},
		},
		synced:       make(chan struct{}),
		status:       Status{Mode: Starting},
		listNeeded:   true,
		watchBackoff: newBackoff(),
		listBackoff:  newBackoff(),
	}, nil
}

// newBackoff grows without jitter: that is added by Options, whose randomness is injected.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: minBackoff, Factor: 2, Steps: 10, Cap: maxBackoff}
}

// Run keeps the snapshot up to date until ctx ends, whatever the server does; Status tells of errors. It can be called
// once, and returns an error only for a second call.
func (w *Watcher[T]) Run(ctx context.Context) error {
	if !w.started.CompareAndSwap(false, true) {
		return errors.New("this Watcher was already run: make a new one")
	}
	var feeding sync.WaitGroup
	feeding.Go(func() { w.feed.run(ctx) })
	defer feeding.Wait()
	for ctx.Err() == nil {
		w.sleep(ctx, w.step(ctx))
	}
	return nil
}

// Snapshot returns the objects that were renewed within MaxAge, by namespace and name. They are shared: do not change
// them.
func (w *Watcher[T]) Snapshot() []*T { return w.points.snapshot(w.options.Clock.Now()) }

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
}

// step does one thing, and returns how long to wait before the next.
func (w *Watcher[T]) step(ctx context.Context) time.Duration {
	if w.version == "" || !w.now().Before(w.renegotiate) {
		// With a version at hand an answer of discovery can wait.
		if err := w.negotiate(ctx); err != nil && w.version == "" {
			return w.listFailed(ctx, err)
		}
		w.renegotiate = w.now().Add(w.options.jitter(w.options.RetryWatch))
	}
	if w.listNeeded || !w.mayWatch() {
		if err := w.list(ctx); err != nil {
			return w.listFailed(ctx, err)
		}
		w.listNeeded = false
		w.listBackoff = newBackoff()
		if !w.mayWatch() {
			w.setStatus(Polling, nil)
			return w.options.jitter(w.options.PollInterval)
		}
	}
	return w.watch(ctx)
}

func (w *Watcher[T]) now() time.Time { return w.options.Clock.Now() }

func (w *Watcher[T]) mayWatch() bool { return w.served && !w.now().Before(w.refusedUntil) }

// agree takes an answer of discovery.
func (w *Watcher[T]) agree(version string, served bool) {
	if version != w.version || served && !w.served {
		// Another server, or a setting changed: what was refused before may be given now.
		w.refusedUntil, w.troubleSince, w.listNeeded = time.Time{}, time.Time{}, true
	}
	w.version, w.served = version, served
}

// listFailed handles what went wrong with discovery or a list.
func (w *Watcher[T]) listFailed(ctx context.Context, err error) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	level := 0
	if last := w.Status().Err; last != nil && last.Error() == err.Error() {
		level = 4 // said already
	}
	klog.FromContext(ctx).V(level).Info("Metrics are not to be had",
		"group", w.api.group, "resource", w.api.resource, "err", err)
	if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) {
		w.version = ""
	}
	w.listNeeded = true
	w.setStatus(Starting, err)
	return max(w.options.jitter(w.listBackoff.Step()), min(retryAfter(err), maxRetryAfter))
}

// errDoubted ends a stream that lasts and brings nothing.
var errDoubted = errors.New("the watch brought no new data point of any object within MaxAge")

// errClosed stands for io.EOF, which tells a user nothing.
var errClosed = errors.New("the server closed the watch soon after it began")

// watch takes a stream in until it ends, and returns how long to wait before the next step.
func (w *Watcher[T]) watch(ctx context.Context) time.Duration {
	streamCtx, cancel := context.WithCancel(ctx)
	path, opened := w.api.path(w.version, true), w.now()
	frames := make(chan frame)
	var reading sync.WaitGroup
	reading.Go(func() { w.stream(streamCtx, path, frames) })
	defer func() { cancel(); reading.Wait() }()

	tick := w.options.Clock.NewTimer(w.tick())
	defer tick.Stop()
	last := opened
	for {
		var err error
		select {
		case <-ctx.Done():
			return 0
		case f := <-frames:
			last = w.now()
			if err = w.take(path, f); err == nil {
				w.setStatus(Watching, nil)
			}
		case <-tick.C():
			tick.Reset(w.tick())
			if w.points.expire(w.now()) {
				err = errDoubted
			} else if w.now().Sub(last) >= w.options.MaxAge {
				// Nobody may be at the other end any more. A selection of no objects looks the same, so it is no trouble.
				err = io.EOF
			}
		}
		if err != nil {
			return w.watchEnded(ctx, path, opened, err)
		}
	}
}

// watchEnded decides what comes after a stream, or after one that could not be opened.
func (w *Watcher[T]) watchEnded(ctx context.Context, path string, opened time.Time, err error) time.Duration {
	log := klog.FromContext(ctx).WithValues("path", path)
	now := w.now()
	switch {
	case ctx.Err() != nil:
		return 0
	case isRefusal(err):
		log.V(2).Info("The watch was refused, polling instead", "err", err)
		w.refuse(now, 0, err)
		return 0
	case apierrors.IsNotFound(err):
		w.version = ""
	case errors.Is(err, errDoubted), startsOver(err):
		w.listNeeded = true
	}

	trouble := errors.Is(err, errDoubted) || now.Sub(opened) < stable
	if !trouble {
		w.watchBackoff, w.troubleSince = newBackoff(), time.Time{}
		return w.options.jitter(minBackoff)
	}
	if errors.Is(err, io.EOF) {
		err = errClosed
	}
	log.V(2).Info("The watch ended", "err", err)
	w.setStatus(Watching, fmt.Errorf("watching %s: %w", path, err))
	if w.troubleSince.IsZero() {
		w.troubleSince = opened
	}
	if after := retryAfter(err); now.Sub(w.troubleSince) >= troubleBeforePolling || after > troubleBeforePolling {
		log.Info("Watching goes wrong for long, polling instead", "err", err)
		w.refuse(now, min(after, time.Hour), err)
		return 0
	}
	return max(w.options.jitter(w.watchBackoff.Step()), retryAfter(err))
}

// refuse lets polling take over for RetryWatch, or longer if the server asked for it.
func (w *Watcher[T]) refuse(now time.Time, atLeast time.Duration, err error) {
	w.refusedUntil = now.Add(max(w.options.jitter(w.options.RetryWatch), atLeast))
	// troubleSince stays: of a watch that went wrong once for long, one failure is enough to poll on.
	w.watchBackoff = newBackoff()
	w.setStatus(Polling, err)
}

// sleep waits for d, and drops in the meantime what is too old.
func (w *Watcher[T]) sleep(ctx context.Context, d time.Duration) {
	until := w.now().Add(d)
	for left := d; left > 0; left = until.Sub(w.now()) {
		timer := w.options.Clock.NewTimer(min(left, w.tick()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
			w.points.expire(w.now())
		}
	}
}

// tick is how often ages are looked at.
func (w *Watcher[T]) tick() time.Duration { return w.options.MaxAge / 10 }
