// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// The times of a Watcher, beside those in Options. They fit each other and the defaults:
//
//	PollInterval × 1.5 (its jitter)  <  MaxAge: what lists renew never expires between two of them (see complete)
//	patience = MaxAge × 2/3          <  MaxAge - PollInterval: a watch is given up early enough for a list
//	stable                           <  60 s: after that kube-apiserver cuts `?watch=true` on custom metrics
//	a bookmark each minute           <  heartbeats, from kube-apiserver's own watches as from ours
const (
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
	// maxRetryAfter bounds what a server can ask for between two lists, maxWatchRetryAfter between two watches.
	maxRetryAfter      = 5 * time.Minute
	maxWatchRetryAfter = time.Hour
	// stable is how long a stream lasts that is no trouble.
	stable = 30 * time.Second
	// troubleBeforePolling is how long a watch is tried for, lists beside, before it rests for RetryWatch.
	troubleBeforePolling = time.Minute
	// heartbeats is how long a watch without objects may be silent.
	heartbeats = 2 * time.Minute
)

// course is what Run knows of the server, and what it means to do next. It belongs to Run's goroutine.
//
// It keeps one invariant: while no watch is open and bringing data points, lists come each PollInterval. Whatever is
// wrong with a watch, a Watcher has what a poller has.
type course[T any] struct {
	api  api[T]
	rest rest.Interface

	version     string    // in use; empty while it is to be chosen anew
	agreed      string    // the last one that was chosen
	served      bool      // discovery names the watch verb
	plainWatch  bool      // the path of watches is refused, and that of lists is watched
	renegotiate time.Time // when to ask discovery again

	listNeeded  bool      // nothing else before a list
	listAt      time.Time // the next one, unless a watch brings data by then
	listBackoff wait.Backoff

	watchAt      time.Time // no watch before that, since the last one went wrong or ended
	refusedUntil time.Time // no watch before that, and no hope for it either
	trouble      error     // what was wrong with the last watch, until one brings something
	troubleSince time.Time // the first of a row of watches that went wrong; zero without
	watchBackoff wait.Backoff
}

func newCourse[T any](c rest.Interface, api api[T]) course[T] {
	return course[T]{api: api, rest: c, listNeeded: true, watchBackoff: newBackoff(), listBackoff: newBackoff()}
}

// newBackoff grows without jitter: that is added by Options, whose randomness is injected.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: minBackoff, Factor: 2, Steps: 10, Cap: maxBackoff}
}

// step does what is due, and returns how long to wait before the next.
func (w *Watcher[T]) step(ctx context.Context) time.Duration {
	if w.version == "" || !w.now().Before(w.renegotiate) {
		// With a version at hand an answer of discovery can wait.
		if err := w.negotiate(ctx); err != nil && w.version == "" {
			return w.listFailed(ctx, err)
		}
		w.renegotiate = w.now().Add(w.options.jitter(w.options.RetryWatch))
	}
	if w.listNeeded || !w.now().Before(w.listAt) {
		if err := w.list(ctx); err != nil {
			return w.listFailed(ctx, err)
		}
		w.listed()
	}
	if w.mayWatch() && !w.now().Before(w.watchAt) {
		w.watch(ctx)
	}
	return w.idle()
}

// idle is how long there is nothing to do.
func (w *Watcher[T]) idle() time.Duration {
	next := w.listAt
	if w.served {
		watchAt := w.watchAt
		if watchAt.Before(w.refusedUntil) {
			watchAt = w.refusedUntil
		}
		if watchAt.Before(next) {
			next = watchAt
		}
	}
	return next.Sub(w.now())
}

// listed notes that a list went well.
func (w *Watcher[T]) listed() {
	w.listNeeded, w.listBackoff = false, newBackoff()
	if w.mayWatch() && w.trouble == nil && w.Status().Mode != Polling {
		w.setStatus(Watching, nil) // it comes next
	} else {
		w.setStatus(Polling, nil)
	}
}

func (w *Watcher[T]) mayWatch() bool {
	return w.served && !w.now().Before(w.refusedUntil)
}

// whyPolling is never nil.
func (w *Watcher[T]) whyPolling() error {
	switch {
	case !w.served:
		return fmt.Errorf("the server names no watch for %s in %s/%s", w.api.resource, w.api.group, w.version)
	case w.trouble != nil:
		return w.trouble
	}
	return errQuiet
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
	if isVersionGone(err) || errors.Is(err, ErrNotServed) {
		w.version = ""
	}
	w.listNeeded = true
	w.setStatus(Starting, err)
	return w.listPause(err)
}

// listPause is how long to wait after a list that failed. The server says the same Retry-After to all: jitter comes on
// top, or they would all be back in one instant.
func (w *Watcher[T]) listPause(err error) time.Duration {
	return min(retryAfter(err), maxRetryAfter) + w.options.jitter(w.listBackoff.Step())
}

// isVersionGone: 404 of a version that was unregistered, 503 of one whose pods are away, when another may answer.
func isVersionGone(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err)
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
