// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// Revoke ends the watch of a client that may not watch any longer: with an ERROR event
// that says why. No data point is written after it was called.
func (w *Watcher) Revoke(why *apierrors.StatusError) {
	t := &w.timetable
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.hasClosed() {
		return
	}
	// First of all, since what waits to be encoded is not to be written.
	w.endedBy(Revoked)
	// It is looked at until it is stopped: the client may never read its end.
	t.endBy(w.hub.now(), Revoked)
	status := why.Status()
	if w.send(watch.Event{Type: watch.Error, Object: &status}) {
		w.request.Meter.error()
	}
	w.close()
}

// revoked says that nothing is to be written any more.
func (w *Watcher) revoked() bool {
	e := w.ending.Load()
	return e != nil && *e == Revoked
}
