// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// EndReason is why a watch ended.
type EndReason string

const (
	// ClientClosed means that the client closed the connection.
	ClientClosed EndReason = "ClientClosed"
	// TimedOut means that the requested timeout, or the default one, was over.
	TimedOut EndReason = "TimedOut"
	// AgedOut means that the watch reached Settings.MaxAge.
	AgedOut EndReason = "AgedOut"
	// ShutDown means that this server shuts down.
	ShutDown EndReason = "ShutDown"
	// Revoked means that the client may no longer watch, see Watcher.Revoke.
	Revoked EndReason = "Revoked"
	// Disabled means that the verb watch was disabled.
	Disabled EndReason = "Disabled"
	// Stalled means that the client read nothing for Settings.StallTimeout.
	Stalled EndReason = "Stalled"
	// WriteFailed means that the connection broke while an event was written.
	WriteFailed EndReason = "WriteFailed"
	// Abandoned means that the watch handler stopped without a known reason: the API server does
	// so for WebSockets whose client may have left.
	Abandoned EndReason = "Abandoned"
)

// isError reports whether neither side intended the end.
func (r EndReason) isError() bool { return r == Stalled || r == WriteFailed }

// setEndReason records why the watch ends, unless that is known already.
func (w *Watcher) setEndReason(r EndReason) { w.reason.CompareAndSwap(nil, &r) }

// endReason returns the recorded reason, or derives it from the request's context.
func (w *Watcher) endReason() EndReason {
	if r := w.reason.Load(); r != nil {
		return *r
	}
	ctxErr := w.contextErr()
	switch {
	case errors.Is(ctxErr, context.DeadlineExceeded):
		return TimedOut
	case ctxErr != nil:
		return ClientClosed
	case w.hub.isDraining():
		// The API server's handler returns on shutdown by itself.
		return ShutDown
	}
	return Abandoned
}

// writeFailed records that an event could not be written, unless the client has left.
func (w *Watcher) writeFailed() {
	if w.contextErr() == nil {
		w.setEndReason(WriteFailed)
	}
}

// contextErr returns the error of the request's context.
func (w *Watcher) contextErr() error {
	w.mu.Lock()
	ctx := w.ctx
	w.mu.Unlock()
	if ctx == nil {
		return nil
	}
	return ctx.Err()
}

// Revoke ends the watch of a client that may no longer watch, with an ERROR event that has the
// status. No point is written after the call.
func (w *Watcher) Revoke(why *apierrors.StatusError) {
	d := &w.deadlines
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.hasClosed() {
		return
	}
	// First, so that pending points are not written.
	w.setEndReason(Revoked)
	// Checked until it is stopped: the client may never read the final event.
	d.endBy(w.hub.now(), Revoked)
	if w.send(watch.Event{Type: watch.Error, Object: new(why.Status())}) {
		w.request.Metrics.errorEvents.Inc()
	}
	w.close()
}

func (w *Watcher) isRevoked() bool {
	r := w.reason.Load()
	return r != nil && *r == Revoked
}
