// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/serving/delayqueue"
)

// eventBuffer is the size of a watcher's channel: an ADDED, the bookmark after the initial
// events, another bookmark, and the final event. There is never more than one of each.
const eventBuffer = 4

// Watcher is the watch of one client. It implements watch.Interface for the API server's watch
// handler, and is the object of its own ADDED events.
type Watcher struct {
	// Entry is used by the hub's dueQueue.
	delayqueue.Entry

	hub       *Hub
	group     *group
	request   Request
	selection Selection
	began     time.Time
	logger    klog.Logger

	events chan watch.Event
	// armed says that an ADDED event is in the channel or being encoded.
	armed atomic.Bool
	// synced says that the initial events were sent.
	synced atomic.Bool
	// progress is the tick at which the client last read an ADDED, or was sent one after it had
	// read all.
	progress atomic.Int64
	// stopped says that Stop was called.
	stopped atomic.Bool
	// reason is why the watch ends, once that is known.
	reason atomic.Pointer[EndReason]

	// Written by the goroutine of the watch handler alone.

	position  atomic.Uint64 // in the group's log
	delivered atomic.Uint64 // number of points

	// Owned by the goroutine of the watch handler.

	seen   watermarks // of what was written or superseded
	scan   *scan      // nil while the watcher reads the log
	writer errorWriter

	// mu guards the fields below and the closing of events.
	mu     sync.Mutex
	closed bool
	// sent counts the events, and bookmarked is the number of the last bookmark among them, except
	// for the one that ends the initial events.
	sent, bookmarked uint64
	// ctx is that of the request, and unregister removes its AfterFunc.
	ctx        context.Context
	unregister func() bool

	deadlines deadlines
	stop      sync.Once
}

var _ watch.Interface = &Watcher{}

// ResultChan returns the events. The object of ADDED events is the watcher itself; they must be
// encoded in order, each once.
func (w *Watcher) ResultChan() <-chan watch.Event { return w.events }

// Stop ends the watch and releases its resources. It may be called more than once.
func (w *Watcher) Stop() {
	w.close()
	w.stop.Do(func() {
		w.stopped.Store(true)
		w.mu.Lock()
		unregister := w.unregister
		w.mu.Unlock()
		reason, after := w.endReason(), w.hub.clock.Since(w.began)
		if unregister != nil {
			unregister()
		}
		w.hub.remove(w)
		w.request.Metrics.end(reason, after)
		w.hub.logger.end(w, reason, after)
		if w.request.Release != nil {
			w.request.Release()
		}
	})
}

// stopWith stops the watch when the context ends: the watch handler does not if it fails before
// it starts.
func (w *Watcher) stopWith(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ctx, w.unregister = ctx, context.AfterFunc(ctx, w.Stop)
}

// wake sends an ADDED event, which may turn out to be empty, unless one is pending. It never
// blocks.
func (w *Watcher) wake() {
	if w.armed.Load() {
		return
	}
	// Before it is armed: a watch that had no events for long has not stalled.
	w.progress.Store(w.hub.due.current.Load())
	if w.armed.CompareAndSwap(false, true) {
		w.send(watch.Event{Type: watch.Added, Object: w})
	}
}

// send puts an event into the channel, unless it is closed or full.
func (w *Watcher) send(e watch.Event) (sent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sendLocked(e)
}

func (w *Watcher) sendLocked(e watch.Event) (sent bool) {
	if w.closed {
		return false
	}
	select {
	case w.events <- e:
		w.sent++
		return true
	default:
		return false
	}
}

// close closes the channel; pending events can still be read.
func (w *Watcher) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed = true
		close(w.events)
	}
}

func (w *Watcher) hasClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// idle returns how long the client has not read a pending event; 0 if there is none.
func (w *Watcher) idle() time.Duration {
	if !w.armed.Load() {
		return 0
	}
	return time.Duration(w.hub.due.current.Load()-w.progress.Load()) * tick
}
