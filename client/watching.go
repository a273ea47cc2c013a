// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// stable is how long a stream lasts that is no trouble. kube-apiserver cuts `?watch=true` on custom metrics after
	// 60 s, so it must be less.
	stable = 30 * time.Second
	// troubleBeforePolling is how long watching may go wrong before polling takes over.
	troubleBeforePolling = time.Minute
	// heartbeats is how long a watch without objects may be silent: bookmarks come about each minute, from
	// kube-apiserver's own watches as from ours.
	heartbeats = 2 * time.Minute
)

var (
	// errDoubted ends a stream that lasts and brings nothing.
	errDoubted = errors.New("the watch brought no new data point of any object within MaxAge")
	// errSilent ends a stream at whose other end there may be nobody any more.
	errSilent = errors.New("the watch fell silent")
	// errClosed stands for io.EOF, which tells a user nothing.
	errClosed = errors.New("the server closed the watch soon after it began")
)

// stream is one watch from its opening to its end.
type stream struct {
	path   string
	opened time.Time
	heard  time.Time // the last frame of any kind
	// renewed: it brought a data point that was not known.
	renewed bool
}

// watch takes a stream in until it ends, and returns how long to wait before the next step.
func (w *Watcher[T]) watch(ctx context.Context) time.Duration {
	streamCtx, cancel := context.WithCancel(ctx)
	s := &stream{path: w.api.path(w.version, true), opened: w.now(), heard: w.now()}
	frames := make(chan frame)
	var reading sync.WaitGroup
	reading.Go(func() { w.read(streamCtx, s.path, frames) })
	defer func() { cancel(); reading.Wait() }()

	tick := w.options.Clock.NewTimer(w.tick())
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return 0
		case f := <-frames:
			if err = w.take(s, f); err == nil {
				s.heard = w.now()
				w.setContact(s.heard)
				w.setStatus(Watching, nil)
			}
		case <-tick.C():
			tick.Reset(w.tick())
			if w.points.expire(w.now()) {
				err = errDoubted
			} else if w.now().Sub(s.heard) >= w.patience() {
				err = errSilent
			}
		}
		if err != nil {
			return w.watchEnded(ctx, s, err)
		}
	}
}

// patience is how long a stream may be silent. With objects at hand there is time for another stream to renew them
// before they are too old.
func (w *Watcher[T]) patience() time.Duration {
	if w.points.empty() {
		return max(w.options.MaxAge, heartbeats)
	}
	return w.options.MaxAge * 2 / 3
}

// watchEnded decides what comes after a stream, or after one that could not be opened.
func (w *Watcher[T]) watchEnded(ctx context.Context, s *stream, err error) time.Duration {
	log := klog.FromContext(ctx).WithValues("path", s.path)
	now := w.now()
	switch {
	case ctx.Err() != nil:
		return 0
	case isRefusal(err), errors.Is(err, errDoubted) && !s.renewed:
		log.V(2).Info("No watch is to be had, polling instead", "err", err)
		w.refuse(now, 0, err)
		return 0
	case errors.Is(err, errDoubted):
		// It did well before. Lists will tell whether there is data at all, and then it has another chance.
		w.dataAwaited = true
		return 0
	case errors.Is(err, errSilent):
		log.V(2).Info("The watch fell silent, opening another")
		return w.options.jitter(minBackoff)
	case isVersionGone(err):
		w.version = ""
	case startsOver(err):
		w.listNeeded = true
	}

	if now.Sub(s.opened) >= stable {
		w.watchBackoff, w.troubleSince = newBackoff(), time.Time{}
		return w.options.jitter(minBackoff)
	}
	if errors.Is(err, io.EOF) {
		err = errClosed
	}
	err = fmt.Errorf("watching %s: %w", s.path, err)
	log.V(2).Info("The watch ended", "err", err)
	w.setStatus(Watching, err)
	if w.troubleSince.IsZero() {
		w.troubleSince = s.opened
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
	w.refusal = err
	// troubleSince stays: of a watch that went wrong once for long, one failure is enough to poll on.
	w.watchBackoff = newBackoff()
	w.setStatus(Polling, err)
}
