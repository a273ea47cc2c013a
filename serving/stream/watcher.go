// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/serving/delayqueue"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
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

var (
	_ watch.Interface         = &Watcher{}
	_ runtime.CacheableObject = &Watcher{}
)

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

// CacheEncode writes the current version of the next point that the client has not seen, or
// nothing if there is none. Writing nothing is valid: it sends no event. The next ADDED is in
// the channel before this one is done, because the watch handler flushes when the channel is
// empty; so a burst is sent in one piece.
func (w *Watcher) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, out io.Writer) error {
	w.progress.Store(w.hub.due.current.Load())
	if w.isRevoked() {
		return nil
	}
	item := w.next()
	if item != nil {
		if err := w.write(item, id, encode, out); err != nil {
			return err
		}
	}
	if w.scan != nil && w.scan.done() {
		w.finishScan()
	}
	w.rearm()
	return nil
}

// write writes and counts a point. One that cannot be encoded is skipped: if the watch ended,
// the client would come back to the same point.
func (w *Watcher) write(item Item, id runtime.Identifier, encode func(runtime.Object, io.Writer) error, out io.Writer) error {
	m := w.request.Metrics
	w.writer.Writer = out
	if err := item.CacheEncode(id, encode, &w.writer); err != nil {
		if !w.writer.failed {
			w.hub.logger.skip(w, item, err)
			m.encodeErrors.Inc()
			return nil
		}
		w.writeFailed()
		return err
	}
	synced := w.synced.Load()
	if w.delivered.Add(1) == 1 && !synced {
		m.firstEvent.Observe(w.hub.clock.Since(w.request.Received).Seconds())
	}
	if synced {
		m.liveEvents.Inc()
		m.latency.Observe(w.hub.clock.Since(w.hub.source.Stored(item.ItemSequence())).Seconds())
	} else {
		m.initialEvents.Inc()
	}
	return nil
}

// rearm puts the next ADDED into the channel, or leaves that to the next wake.
func (w *Watcher) rearm() {
	if w.hasMore() {
		w.send(watch.Event{Type: watch.Added, Object: w})
		return
	}
	w.armed.Store(false)
	// A point that was published in between found the watcher armed and did not wake it.
	if w.hasMore() {
		w.wake()
	}
}

func (w *Watcher) hasMore() bool { return w.scan != nil || w.group.head.Load() > w.position.Load() }

// next returns the point to write, or nil.
func (w *Watcher) next() Item {
	for {
		if w.scan != nil {
			if item := w.scan.next(); item != nil {
				return item
			}
			w.finishScan()
		}
		position := w.position.Load()
		e, next, lost := w.group.read(position)
		if lost {
			w.catchUp()
			continue
		}
		if next == position {
			return nil
		}
		w.position.Store(next)
		w.countCoalesced(next - position - 1)
		covered := e.sequence <= w.seen.get(e.key)
		// The log is in the order of the numbers.
		w.seen.raise(e.sequence)
		if covered {
			continue
		}
		item := w.hub.source.Get(e.key)
		if item == nil || item.ItemSequence() != e.sequence {
			// Superseded: the newer point has its own entry.
			w.countCoalesced(1)
			continue
		}
		if w.selection.matches(item) {
			return item
		}
	}
}

// countCoalesced counts superseded points, unless the log may have points that the selection
// does not select.
func (w *Watcher) countCoalesced(n uint64) {
	if n > 0 && w.group.prefiltered {
		w.request.Metrics.coalesced.Add(float64(n))
	}
}

// catchUp starts a scan in place of log entries that were overwritten.
func (w *Watcher) catchUp() {
	w.request.Metrics.rescans.Inc()
	w.group.grow()
	// First the position, then the scan: what is stored in between is in both, and is skipped in
	// the log.
	w.position.Store(w.group.head.Load())
	w.startScan()
}

func (w *Watcher) startScan() {
	w.scan = &scan{
		source: w.hub.source, selection: w.selection, required: samplestore.RequiredLabels(w.selection.Labels), before: w.seen,
	}
}

func (w *Watcher) finishScan() {
	w.seen = w.scan.covered
	w.scan = nil
	if w.synced.Load() {
		return
	}
	if w.request.InitialEventsEnd && w.request.NewBookmark != nil &&
		w.send(watch.Event{Type: watch.Bookmark, Object: w.request.NewBookmark(true)}) {
		w.request.Metrics.bookmarks.Inc()
	}
	w.synced.Store(true)
}

// idle returns how long the client has not read a pending event; 0 if there is none.
func (w *Watcher) idle() time.Duration {
	if !w.armed.Load() {
		return 0
	}
	return time.Duration(w.hub.due.current.Load()-w.progress.Load()) * tick
}

// GetObject returns an empty object: the point is chosen when it is encoded. Encoders that know
// CacheableObject do not call it.
func (w *Watcher) GetObject() runtime.Object { return &metav1.PartialObjectMetadata{} }

// GetObjectKind returns an empty kind, as objects of an internal version do.
func (w *Watcher) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the watcher itself: it has one position in the stream.
func (w *Watcher) DeepCopyObject() runtime.Object { return w }

// errorWriter records whether a write failed, to tell that from an encoding error.
type errorWriter struct {
	io.Writer
	failed bool
}

func (w *errorWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.failed = w.failed || err != nil
	return n, err
}
