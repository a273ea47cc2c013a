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

// stream is one watch, from its request to its end.
type stream struct {
	path        string
	requestedAt time.Time
	openedAt    time.Time // when the response headers came; zero before
	lastFrame   time.Time // requestedAt before the first frame
	lastNew     time.Time // the last data point that was new, or the first one; zero before
	// gotEvent means that an event came, if only a bookmark. Headers are not enough: some proxies send them and hold
	// back the body.
	gotEvent bool
	renewed  bool // the stream delivered a data point that was new
	events   int  // data points, new or not
	// missedLists counts consecutive lists that had a new data point while the stream delivered none.
	missedLists int
}

// listResult is the response of a list that was sent while a stream was open.
type listResult struct {
	body   []byte
	err    error
	events int // stream.events when the list was sent
}

// watch opens a watch and applies its events until it ends. While it delivers no data points, it also sends lists.
func (w *Watcher[T]) watch(ctx context.Context) {
	streamCtx, cancel := context.WithCancel(ctx)
	s := &stream{path: w.api.path(w.version, !w.watchListPath), requestedAt: w.now(), lastFrame: w.now()}
	frames, lists := make(chan frame), make(chan listResult, 1)
	var requests sync.WaitGroup
	requests.Go(func() { w.readFrames(streamCtx, s.path, frames) })
	defer func() { cancel(); requests.Wait() }()

	// expireAt is a deadline and not a pause after each frame, so that objects expire on a busy stream, too.
	listing, expireAt := false, w.now().Add(w.expiryInterval())
	for {
		var err error
		timer := w.options.Clock.NewTimer(w.untilTimer(s, expireAt, listing))
		select {
		case <-ctx.Done():
		case f := <-frames:
			err = w.handleFrame(s, f)
		case result := <-lists:
			listing = false
			err = w.handleList(ctx, s, result)
		case <-timer.C():
			w.store.expire(w.now())
			expireAt = w.now().Add(w.expiryInterval())
			if w.now().Sub(s.lastFrame) >= w.silenceTimeout() {
				err = errSilent
			} else if !listing && !w.delivering(s) && !w.now().Before(w.listAt) {
				listing = true
				path, events := w.api.path(w.version, false), s.events
				requests.Go(func() {
					body, err := w.fetchList(streamCtx, path)
					lists <- listResult{body, err, events}
				})
			}
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.streamEnded(ctx, s, err)
			return
		}
	}
}

// untilTimer returns the time until watch has something to do even if neither a frame nor a list arrives.
func (w *Watcher[T]) untilTimer(s *stream, expireAt time.Time, listing bool) time.Duration {
	next := min(expireAt.Sub(w.now()), s.lastFrame.Add(w.silenceTimeout()).Sub(w.now()))
	switch {
	case w.delivering(s):
		next = min(next, s.lastNew.Add(w.options.MaxAge*2/3).Sub(w.now()))
	case !listing:
		next = min(next, w.listAt.Sub(w.now()))
	}
	return max(0, next)
}

func (w *Watcher[T]) handleFrame(s *stream, f frame) error {
	if err := w.applyFrame(s, f); err != nil {
		return err
	}
	s.lastFrame = w.now()
	w.setContact(s.lastFrame)
	if f.opened {
		s.openedAt = s.lastFrame
		return nil
	}
	s.gotEvent = true
	if w.delivering(s) {
		w.watchErr = nil
		w.setStatus(Watching, nil)
	}
	return nil
}

// delivering reports whether the stream has delivered a new data point recently enough: if not, there is still time
// for a list before the objects expire.
func (w *Watcher[T]) delivering(s *stream) bool {
	return !s.lastNew.IsZero() && w.now().Sub(s.lastNew) < w.options.MaxAge*2/3
}

// handleList applies a list that was sent because the stream delivered nothing. An error ends the stream.
func (w *Watcher[T]) handleList(ctx context.Context, s *stream, result listResult) error {
	if w.delivering(s) {
		return nil // the stream is newer than the list by now
	}
	renewed, err := false, result.err
	if err == nil {
		renewed, err = w.applyList(w.api.path(w.version, false), result.body)
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot list metrics, and their watch brings none", "path", s.path, "err", err)
		w.listAt = w.now().Add(w.listDelay(err))
		w.setStatus(w.Status().Mode, err)
		if isVersionGone(err) && !s.gotEvent {
			return err
		}
		return nil
	}
	w.listBackoff = newBackoff()
	w.setStatus(Polling, nil)
	switch {
	case s.events > result.events:
		s.missedLists = 0
	case renewed && s.gotEvent:
		// One such list may just have been faster than the watch, whose event must arrive before the next list.
		if s.missedLists++; s.missedLists > 1 {
			return errStale
		}
	}
	return nil
}

// silenceTimeout returns how long a stream may be silent. If there are objects, it leaves time for another stream to
// renew them before they expire.
func (w *Watcher[T]) silenceTimeout() time.Duration {
	if w.store.empty() {
		return max(w.options.MaxAge, idleTimeout)
	}
	return w.options.MaxAge * 2 / 3
}

// streamEnded decides what follows a stream that ended, or could not be opened.
func (w *Watcher[T]) streamEnded(ctx context.Context, s *stream, err error) {
	log := klog.FromContext(ctx).WithValues("path", s.path)
	now := w.now()
	silent, stale := errors.Is(err, errSilent), errors.Is(err, errStale)
	if w.api.listPathWatchable && !w.watchListPath && s.openedAt.IsZero() && (isWatchRejected(err) || apierrors.IsNotFound(err)) {
		// Not every implementation has the prefix, and it needs the verb watch where the path of lists needs get.
		log.V(2).Info("The path of watches cannot be watched, watching the path of lists", "err", err)
		w.watchListPath, w.watchAt = true, now
		return
	}
	w.watchAt = now.Add(w.options.jitter(minBackoff))
	switch {
	case isWatchRejected(err), silent && !s.gotEvent && !w.store.empty(), stale && !s.renewed:
		log.V(2).Info("The API cannot be watched, polling instead", "err", err)
		w.pauseWatch(now, 0, err)
		return
	case silent && w.store.empty():
		return // there was nothing to deliver
	case isVersionGone(err):
		w.version = ""
	case needsRelist(err):
		w.listNeeded = true
	}

	lastGood, failedAt := now, s.requestedAt
	switch {
	case silent:
		lastGood, failedAt = s.lastFrame, now
	case stale:
		lastGood, failedAt = s.lastNew, now
	}
	healthy := !s.openedAt.IsZero() && lastGood.Sub(s.openedAt) >= minHealthyStream && (s.gotEvent || w.store.empty())
	if healthy {
		w.watchBackoff, w.failingSince = newBackoff(), time.Time{}
	}
	if healthy && !silent && !stale {
		if w.delivering(s) {
			w.listAt = now.Add(w.options.jitter(w.options.PollInterval))
		}
		return
	}
	if w.listAt.Before(w.watchAt) && s.gotEvent {
		w.listAt = w.watchAt // jittered: other clients may have been cut off at the same moment
	}

	if errors.Is(err, io.EOF) {
		err = errClosedEarly
	}
	err = fmt.Errorf("watching %s: %w", s.path, err)
	log.V(2).Info("The watch ended", "err", err)
	w.watchErr = err
	w.setStatus(w.Status().Mode, err)
	if healthy {
		return
	}
	if w.failingSince.IsZero() {
		w.failingSince = failedAt
	}
	if after := retryAfter(err); now.Sub(w.failingSince) >= watchRetryTimeout || after > watchRetryTimeout {
		log.Info("The watch keeps failing, polling for a while", "err", err)
		w.pauseWatch(now, min(after, maxWatchRetryAfter), err)
		return
	}
	w.watchAt = now.Add(retryAfter(err) + w.options.jitter(w.watchBackoff.Step()))
}

// pauseWatch polls for RetryWatch, or longer if the server asked for it.
func (w *Watcher[T]) pauseWatch(now time.Time, retryAfter time.Duration, err error) {
	pause := w.options.jitter(w.options.RetryWatch)
	if retryAfter > 0 {
		// All rejected clients got the same Retry-After: add jitter.
		pause = max(pause, retryAfter+w.options.jitter(maxBackoff))
	}
	w.watchPausedUntil = now.Add(pause)
	w.watchErr = err
	// failingSince stays: after the pause, one more failure is enough for the next pause.
	w.watchBackoff = newBackoff()
	w.setStatus(Polling, nil) // with err as PollingReason
}
