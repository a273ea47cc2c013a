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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

var (
	// errDoubted ends a stream that is alive and does not bring what lists have.
	errDoubted = errors.New("lists have new data points that the watch does not bring")
	// errSilent ends a stream at whose other end there may be nobody any more.
	errSilent = errors.New("the watch fell silent")
	// errQuiet is why there are lists beside a watch with which nothing is wrong, as far as is known.
	errQuiet = errors.New("the watch brings no data points")
	// errClosed stands for io.EOF, which tells a user nothing.
	errClosed = errors.New("the server closed the watch soon after it began")
)

// stream is one watch from the request to its end.
type stream struct {
	path   string
	asked  time.Time
	opened time.Time // when the headers came; zero before
	heard  time.Time // the last frame of any kind, or when it was asked for
	fresh  time.Time // the first data point, or the last that was not known; zero before
	// brought: something came, if only a bookmark. Headers are not enough: some proxies send them and keep the rest.
	brought bool
	// renewed: it brought a data point that was not known.
	renewed bool
	// events counts data points, missed the lists in a row that had a new one while none came.
	events, missed int
}

// listing is the answer of a list that was asked for beside a stream.
type listing struct {
	body   []byte
	err    error
	events int // of the stream, when it was asked for
}

// watch takes a stream in until it ends. As long as it brings no data points, there are lists as well.
func (w *Watcher[T]) watch(ctx context.Context) {
	streamCtx, cancel := context.WithCancel(ctx)
	s := &stream{path: w.api.path(w.version, !w.plainWatch), asked: w.now(), heard: w.now()}
	frames, listings := make(chan frame), make(chan listing, 1)
	var requests sync.WaitGroup
	requests.Go(func() { w.read(streamCtx, s.path, frames) })
	defer func() { cancel(); requests.Wait() }()

	// agesAt is a moment, and no pause after each frame: what is gone has to leave a busy stream, too.
	inFlight, agesAt := false, w.now().Add(w.tick())
	for {
		var err error
		timer := w.options.Clock.NewTimer(w.nextLook(s, agesAt, inFlight))
		select {
		case <-ctx.Done():
		case f := <-frames:
			err = w.heard(s, f)
		case answer := <-listings:
			inFlight = false
			err = w.takeBeside(ctx, s, answer)
		case <-timer.C():
			w.points.expire(w.now())
			agesAt = w.now().Add(w.tick())
			if w.now().Sub(s.heard) >= w.patience() {
				err = errSilent
			} else if !inFlight && !w.bringing(s) && !w.now().Before(w.listAt) {
				inFlight = true
				path, events := w.api.path(w.version, false), s.events
				requests.Go(func() {
					body, err := w.fetch(streamCtx, path)
					listings <- listing{body, err, events}
				})
			}
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.watchEnded(ctx, s, err)
			return
		}
	}
}

// nextLook is in how long there may be something to do though nothing comes, ages at agesAt for one.
func (w *Watcher[T]) nextLook(s *stream, agesAt time.Time, inFlight bool) time.Duration {
	next := min(agesAt.Sub(w.now()), s.heard.Add(w.patience()).Sub(w.now()))
	switch {
	case w.bringing(s):
		next = min(next, s.fresh.Add(w.options.MaxAge*2/3).Sub(w.now()))
	case !inFlight:
		next = min(next, w.listAt.Sub(w.now()))
	}
	return max(0, next)
}

// heard takes a frame in.
func (w *Watcher[T]) heard(s *stream, f frame) error {
	if err := w.take(s, f); err != nil {
		return err
	}
	s.heard = w.now()
	w.setContact(s.heard)
	if f.opened {
		s.opened = s.heard
		return nil
	}
	s.brought = true
	if w.bringing(s) {
		w.trouble = nil
		w.setStatus(Watching, nil)
	}
	return nil
}

// bringing tells whether a stream brings data points. Before the objects that it brought are too old, lists look
// whether there is something newer.
func (w *Watcher[T]) bringing(s *stream) bool {
	return !s.fresh.IsZero() && w.now().Sub(s.fresh) < w.options.MaxAge*2/3
}

// takeBeside takes a list in that was asked for since the stream brought nothing. An error ends the stream.
func (w *Watcher[T]) takeBeside(ctx context.Context, s *stream, answer listing) error {
	if w.bringing(s) {
		return nil // by now, and what is newer than the list would be dropped by it
	}
	renewed, err := false, answer.err
	if err == nil {
		renewed, err = w.takeList(w.api.path(w.version, false), answer.body)
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Metrics are not to be had beside a watch that brings none", "path", s.path, "err", err)
		w.listAt = w.now().Add(w.listPause(err))
		w.setStatus(w.Status().Mode, err)
		if isVersionGone(err) && !s.brought {
			return err
		}
		return nil
	}
	w.listBackoff = newBackoff()
	w.setStatus(Polling, nil)
	switch {
	case s.events > answer.events:
		s.missed = 0
	case renewed && s.brought:
		// Once may be chance: the list was quicker. What it had must have come by the next.
		if s.missed++; s.missed > 1 {
			return errDoubted
		}
	}
	return nil
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
func (w *Watcher[T]) watchEnded(ctx context.Context, s *stream, err error) {
	log := klog.FromContext(ctx).WithValues("path", s.path)
	now := w.now()
	silent, doubted := errors.Is(err, errSilent), errors.Is(err, errDoubted)
	if w.api.plain && !w.plainWatch && s.opened.IsZero() && (isRefusal(err) || apierrors.IsNotFound(err)) {
		// Not every implementation has the prefix, and it needs the verb watch where the other needs get.
		log.V(2).Info("The path of watches is not to be had, watching that of lists", "err", err)
		w.plainWatch, w.watchAt = true, now
		return
	}
	w.watchAt = now.Add(w.options.jitter(minBackoff))
	switch {
	case isRefusal(err), silent && !s.brought && !w.points.empty(), doubted && !s.renewed:
		log.V(2).Info("No watch is to be had, polling instead", "err", err)
		w.refuse(now, 0, err)
		return
	case silent && w.points.empty():
		return // nothing is there that it could have brought
	case isVersionGone(err):
		w.version = ""
	case startsOver(err):
		w.listNeeded = true
	}

	lasted, since := now, s.asked
	switch {
	case silent:
		lasted, since = s.heard, now
	case doubted:
		lasted, since = s.fresh, now
	}
	good := !s.opened.IsZero() && lasted.Sub(s.opened) >= stable && (s.brought || w.points.empty())
	if good {
		w.watchBackoff, w.troubleSince = newBackoff(), time.Time{}
	}
	if good && !silent && !doubted {
		if w.bringing(s) {
			w.listAt = now.Add(w.options.jitter(w.options.PollInterval))
		}
		return
	}
	if w.listAt.Before(w.watchAt) && s.brought {
		w.listAt = w.watchAt // not all who were cut off in this moment
	}

	if errors.Is(err, io.EOF) {
		err = errClosed
	}
	err = fmt.Errorf("watching %s: %w", s.path, err)
	log.V(2).Info("The watch ended", "err", err)
	w.trouble = err
	w.setStatus(w.Status().Mode, err)
	if good {
		return
	}
	if w.troubleSince.IsZero() {
		w.troubleSince = since
	}
	if after := retryAfter(err); now.Sub(w.troubleSince) >= troubleBeforePolling || after > troubleBeforePolling {
		log.Info("Watching goes wrong for long, resting it", "err", err)
		w.refuse(now, min(after, maxWatchRetryAfter), err)
		return
	}
	w.watchAt = now.Add(retryAfter(err) + w.options.jitter(w.watchBackoff.Step()))
}

// refuse lets polling take over for RetryWatch, or longer if the server asked for it.
func (w *Watcher[T]) refuse(now time.Time, retryAfter time.Duration, err error) {
	rest := w.options.jitter(w.options.RetryWatch)
	if retryAfter > 0 {
		// All who were refused have heard the same: jitter comes on top.
		rest = max(rest, retryAfter+w.options.jitter(maxBackoff))
	}
	w.refusedUntil = now.Add(rest)
	w.trouble = err
	// troubleSince stays: of a watch that went wrong once for long, one failure is enough to poll on.
	w.watchBackoff = newBackoff()
	w.setStatus(Polling, nil) // with err as the reason
}
