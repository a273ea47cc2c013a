// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"errors"
	"io"
)

// Ending is why a watch ended.
type Ending string

const (
	// ClientClosed means that the client went away.
	ClientClosed Ending = "ClientClosed"
	// TimedOut means that the time was over that the client asked for, or was given since
	// it asked for none.
	TimedOut Ending = "TimedOut"
	// AgedOut means that the watch reached Settings.MaxAge.
	AgedOut Ending = "AgedOut"
	// ShutDown means that this server shuts down.
	ShutDown Ending = "ShutDown"
	// Revoked means that the client may not watch any longer, see Watcher.Revoke.
	Revoked Ending = "Revoked"
	// Disabled means that watches were turned off.
	Disabled Ending = "Disabled"
	// Stalled means that the client took nothing for Settings.StallTimeout.
	Stalled Ending = "Stalled"
	// WriteFailed means that the connection broke while an event was written to it.
	WriteFailed Ending = "WriteFailed"
	// Abandoned means that whoever read the watch stopped, and gave no sign why: the
	// API server does so for WebSockets, whose client may have left.
	Abandoned Ending = "Abandoned"
)

// broken says that the watch ended in a way that neither side meant.
func (e Ending) broken() bool { return e == Stalled || e == WriteFailed }

// endedBy records why the watch ends; the first reason stands.
func (w *Watcher) endedBy(e Ending) { w.ending.CompareAndSwap(nil, &e) }

// endingNow returns why the watch ends; where nobody said so it follows from the
// error of the request's context.
func (w *Watcher) endingNow() Ending {
	if e := w.ending.Load(); e != nil {
		return *e
	}
	ctxErr := w.contextErr()
	switch {
	case errors.Is(ctxErr, context.DeadlineExceeded):
		return TimedOut
	case ctxErr != nil:
		return ClientClosed
	case w.hub.shutsDown():
		// The API server's handler returns on that by itself.
		return ShutDown
	}
	return Abandoned
}

// fail records that an event could not be written: no error where the client
// has left.
func (w *Watcher) fail() {
	if w.contextErr() == nil {
		w.endedBy(WriteFailed)
	}
}

// contextErr returns the error of the request's context.
func (w *Watcher) contextErr() error {
	w.mu.Lock()
	bound := w.bound
	w.mu.Unlock()
	if bound == nil {
		return nil
	}
	return bound.Err()
}

// sink is what an event is written to. It remembers a failure, to tell it from
// that of encoding.
type sink struct {
	io.Writer
	failed bool
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	s.failed = s.failed || err != nil
	return n, err
}
