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
	"k8s.io/klog/v2"
)

// Fixed durations of a Watcher. Together with the defaults of Options they must keep these relations:
//
//	PollInterval × 1.5 (its jitter)     <  MaxAge: an object that each list renews never expires (see complete)
//	silenceTimeout() = MaxAge × 2/3     <  MaxAge - PollInterval: after a silent watch there is time for a list
//	minHealthyStream                    <  60 s: after that kube-apiserver cuts `?watch=true` on custom metrics
//	1 min between bookmarks             <  idleTimeout, with kube-apiserver's own watches as with ours
const (
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
	// maxRetryAfter bounds the Retry-After that a list honors, maxWatchRetryAfter that of a watch.
	maxRetryAfter      = 5 * time.Minute
	maxWatchRetryAfter = time.Hour
	// minHealthyStream is how long a stream must last to count as a success.
	minHealthyStream = 30 * time.Second
	// watchRetryTimeout is how long a failing watch is retried before it is paused for RetryWatch.
	watchRetryTimeout = time.Minute
	// idleTimeout is how long a watch without objects may be silent.
	idleTimeout = 2 * time.Minute
)

// runState is what Run has learned about the server, and when it acts next. Only Run's goroutine uses it.
//
// Invariant: unless a watch is open and delivering data points, a list is sent each PollInterval. So a Watcher never
// has less data than a client that polls.
type runState struct {
	version       string    // in use; empty while discovery has to choose one
	lastVersion   string    // the last one that discovery chose
	watchable     bool      // discovery has the verb watch
	watchListPath bool      // the path of watches failed, so the path of lists is watched
	rediscoverAt  time.Time // when to ask discovery again

	listNeeded  bool      // no watch before the next list
	listAt      time.Time // when the next list is due, unless a watch delivers data by then
	listBackoff wait.Backoff

	watchAt          time.Time // the next watch, after one that ended or failed
	watchPausedUntil time.Time // polling only until then
	watchErr         error     // why the last watch failed; nil once a watch delivers
	failingSince     time.Time // the first of consecutive failed watches; zero if none
	watchBackoff     wait.Backoff
}

// newBackoff has no jitter of its own: Options adds it, with the injected randomness.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: minBackoff, Factor: 2, Steps: 10, Cap: maxBackoff}
}

// step does what is due, and returns how long to wait before the next step.
func (w *Watcher[T]) step(ctx context.Context) time.Duration {
	if w.version == "" || !w.now().Before(w.rediscoverAt) {
		// Failed discovery matters only if there is no version to go on with.
		if err := w.discover(ctx); err != nil && w.version == "" {
			return w.listFailed(ctx, err)
		}
		w.rediscoverAt = w.now().Add(w.options.jitter(w.options.RetryWatch))
	}
	if w.listNeeded || !w.now().Before(w.listAt) {
		if err := w.list(ctx); err != nil {
			return w.listFailed(ctx, err)
		}
		w.listSucceeded()
	}
	if w.mayWatch() && !w.now().Before(w.watchAt) {
		w.watch(ctx)
	}
	return w.untilNext()
}

// untilNext returns the time until the next list or watch is due.
func (w *Watcher[T]) untilNext() time.Duration {
	next := w.listAt.Sub(w.now())
	if w.watchable {
		next = min(next, max(w.watchAt.Sub(w.now()), w.watchPausedUntil.Sub(w.now())))
	}
	return next
}

func (w *Watcher[T]) listSucceeded() {
	w.listNeeded, w.listBackoff = false, newBackoff()
	if w.mayWatch() && w.watchErr == nil && w.Status().Mode != Polling {
		w.setStatus(Watching, nil) // the watch comes next
	} else {
		w.setStatus(Polling, nil)
	}
}

func (w *Watcher[T]) mayWatch() bool {
	return w.watchable && !w.now().Before(w.watchPausedUntil)
}

// pollingReason returns why the API is polled. It is never nil.
func (w *Watcher[T]) pollingReason() error {
	switch {
	case !w.watchable:
		return fmt.Errorf("the server names no watch for %s in %s/%s", w.api.resource, w.api.group, w.version)
	case w.watchErr != nil:
		return w.watchErr
	}
	return errNoData
}

// listFailed records that discovery or a list failed, and returns how long to wait before the next try.
func (w *Watcher[T]) listFailed(ctx context.Context, err error) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	level := 0
	if last := w.Status().Err; last != nil && last.Error() == err.Error() {
		level = 4 // logged already
	}
	klog.FromContext(ctx).V(level).Info("Cannot list metrics",
		"group", w.api.group, "resource", w.api.resource, "err", err)
	if isVersionGone(err) || errors.Is(err, ErrNotServed) {
		w.version = ""
	}
	w.listNeeded = true
	w.setStatus(Starting, err)
	return w.listDelay(err)
}

// listDelay returns how long to wait after a failed list. The server sends the same Retry-After to all clients: jitter
// is added, or all would return at the same instant.
func (w *Watcher[T]) listDelay(err error) time.Duration {
	return min(retryAfter(err), maxRetryAfter) + w.options.jitter(w.listBackoff.Step())
}

// isVersionGone reports whether another version of the API may answer: 404 if this one was unregistered, 503 if its
// pods are away.
func isVersionGone(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err)
}

// sleep waits for d, and expires objects meanwhile.
func (w *Watcher[T]) sleep(ctx context.Context, d time.Duration) {
	until := w.now().Add(d)
	for left := d; left > 0; left = until.Sub(w.now()) {
		timer := w.options.Clock.NewTimer(min(left, w.expiryInterval()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
			w.store.expire(w.now())
		}
	}
}

// expiryInterval is the time between two looks for objects that are too old.
func (w *Watcher[T]) expiryInterval() time.Duration { return w.options.MaxAge / 10 }
