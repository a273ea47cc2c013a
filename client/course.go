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

const (
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
	// maxRetryAfter bounds what a server can ask for between two lists.
	maxRetryAfter = 5 * time.Minute
)

// course is what Run knows of the server, and what it means to do next. It belongs to Run's goroutine.
type course[T any] struct {
	api  api[T]
	rest rest.Interface

	version      string    // in use; empty while it is to be chosen anew
	agreed       string    // the last one that was chosen
	served       bool      // discovery names the watch verb
	renegotiate  time.Time // when to ask discovery again
	refusedUntil time.Time // no watch before that
	refusal      error     // and why
	dataAwaited  bool      // no watch before a list brings a new data point
	listNeeded   bool
	troubleSince time.Time // the first of a row of streams that went wrong; zero without
	watchBackoff wait.Backoff
	listBackoff  wait.Backoff
}

func newCourse[T any](c rest.Interface, api api[T]) course[T] {
	return course[T]{api: api, rest: c, listNeeded: true, watchBackoff: newBackoff(), listBackoff: newBackoff()}
}

// newBackoff grows without jitter: that is added by Options, whose randomness is injected.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: minBackoff, Factor: 2, Steps: 10, Cap: maxBackoff}
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

func (w *Watcher[T]) mayWatch() bool {
	return w.served && !w.dataAwaited && !w.now().Before(w.refusedUntil)
}

// whyPolling is nil where a watch may be tried.
func (w *Watcher[T]) whyPolling() error {
	switch {
	case !w.served:
		return fmt.Errorf("the server names no watch for %s in %s/%s", w.api.resource, w.api.group, w.version)
	case w.now().Before(w.refusedUntil):
		return w.refusal
	case w.dataAwaited:
		return errDoubted
	}
	return nil
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
	return max(w.options.jitter(w.listBackoff.Step()), min(retryAfter(err), maxRetryAfter))
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
