// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

var _ runtime.CacheableObject = &Watcher{}

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
