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

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// backlog is the room in a watcher's channel: an ADDED, the end of the initial
// events, a bookmark, and the last event before the close. There is never more
// than one of each.
const backlog = 4

// Watcher is one client's watch. It is a watch.Interface for the API server's
// watch handler, and the object of its own ADDED events.
type Watcher struct {
	hub       *Hub
	group     *group
	request   Request
	selection Selection
	began     time.Time
	logger    klog.Logger

	events chan watch.Event
	// armed says that an ADDED event is in the channel or being encoded.
	armed atomic.Bool
	// synced says that the initial events are out.
	synced atomic.Bool
	// progress is the tick of the agenda at which the client last took an ADDED,
	// or was offered one after it had taken all.
	progress atomic.Int64
	// stopped says that Stop was called.
	stopped atomic.Bool
	// ending is why the watch ends, as soon as that is known.
	ending atomic.Pointer[Ending]

	// These are written by whoever encodes: the one goroutine of the watch handler.

	position  atomic.Uint64 // in the group's log
	delivered atomic.Uint64 // events with a data point

	// These belong to it.

	seen  coverage // what was written or superseded
	sweep *sweep   // nil unless the log does not have all that is to come
	sink  sink

	// mu guards what goes into events, and their closing.
	mu     sync.Mutex
	closed bool
	// sent counts the events, and marked is the number of the last bookmark among
	// them, but for the one that ends the initial events.
	sent, marked uint64

	timetable timetable
	stop      sync.Once
	// bound is the request's context, and unbind lets go of it; both under mu.
	bound  context.Context
	unbind func() bool
}

var (
	_ watch.Interface         = &Watcher{}
	_ runtime.CacheableObject = &Watcher{}
)

// ResultChan returns the events. Those of type ADDED have the watcher itself as
// their object and must be encoded in order, each once.
func (w *Watcher) ResultChan() <-chan watch.Event { return w.events }

// Stop ends the watch and releases all that it holds. It may be called again.
func (w *Watcher) Stop() {
	w.close()
	w.stop.Do(func() {
		w.stopped.Store(true)
		w.mu.Lock()
		unbind := w.unbind
		w.mu.Unlock()
		ending, after := w.endingNow(), w.hub.clock.Since(w.began)
		if unbind != nil {
			unbind()
		}
		w.hub.remove(w)
		w.request.Meter.end(ending, after)
		w.hub.journal.end(w, ending, after)
		if w.request.Release != nil {
			w.request.Release()
		}
	})
}

// bind makes the watch end with a context: the watch handler calls Stop, unless
// it fails before it begins.
func (w *Watcher) bind(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bound, w.unbind = ctx, context.AfterFunc(ctx, w.Stop)
}

// wake announces that there may be something to encode. It never blocks.
func (w *Watcher) wake() {
	if w.armed.Load() {
		return
	}
	// Before it is armed: one that had nothing for long has not stalled.
	w.progress.Store(w.hub.agenda.current.Load())
	if w.armed.CompareAndSwap(false, true) {
		w.send(watch.Event{Type: watch.Added, Object: w})
	}
}

// send puts an event into the channel, unless it is closed or has no room.
func (w *Watcher) send(e watch.Event) (sent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.put(e)
}

// put is send, for who holds mu.
func (w *Watcher) put(e watch.Event) (sent bool) {
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

// close ends the channel after what is in it.
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

// CacheEncode writes the next data point that the client has not seen, as it is
// now. It may turn out that there is none; then it writes nothing, which is no
// event to the client. As long as there is more, the next ADDED is in the channel
// before this one is done: the watch handler flushes when the channel is empty,
// so a burst leaves in one piece.
func (w *Watcher) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, out io.Writer) error {
	w.progress.Store(w.hub.agenda.current.Load())
	if w.revoked() {
		return nil
	}
	item := w.next()
	if item != nil {
		if err := w.write(item, id, encode, out); err != nil {
			return err
		}
	}
	if w.sweep != nil && w.sweep.done() {
		w.endSweep()
	}
	w.rearm()
	return nil
}

// write writes a data point and counts it. One that cannot be encoded is left out:
// with an end of the watch the client would come back to the same point.
func (w *Watcher) write(item Item, id runtime.Identifier, encode func(runtime.Object, io.Writer) error, out io.Writer) error {
	w.sink.Writer = out
	if err := item.CacheEncode(id, encode, &w.sink); err != nil {
		if !w.sink.failed {
			w.hub.journal.skip(w, item, err)
			w.request.Meter.skip()
			return nil
		}
		w.fail()
		return err
	}
	m := w.request.Meter
	if w.delivered.Add(1) == 1 && !w.synced.Load() {
		m.deliverFirst(w.hub.clock.Since(w.request.Received))
	}
	if w.synced.Load() {
		m.deliverLive(w.hub.clock.Since(w.hub.source.Stored(item.ItemSequence())))
	} else {
		m.deliverInitial()
	}
	return nil
}

// rearm puts the next ADDED into the channel, or leaves that to the next wake.
func (w *Watcher) rearm() {
	if w.more() {
		w.send(watch.Event{Type: watch.Added, Object: w})
		return
	}
	w.armed.Store(false)
	// A point that came in between found the watcher armed and did not wake it.
	if w.more() {
		w.wake()
	}
}

func (w *Watcher) more() bool { return w.sweep != nil || w.group.head.Load() > w.position.Load() }

// next returns the point to write, or nil.
func (w *Watcher) next() Item {
	for {
		if w.sweep != nil {
			if item := w.sweep.next(); item != nil {
				return item
			}
			w.endSweep()
		}
		position := w.position.Load()
		e, after, lost := w.group.read(position)
		if lost {
			w.catchUp()
			continue
		}
		if after == position {
			return nil
		}
		w.position.Store(after)
		w.coalesce(after - position - 1)
		covered := e.sequence <= w.seen.of(e.key)
		// The log is in the order of the numbers.
		w.seen.raise(e.sequence)
		if covered {
			continue
		}
		item := w.hub.source.Get(e.key)
		if item == nil || item.ItemSequence() != e.sequence {
			// Superseded: the newer point has its own entry.
			w.coalesce(1)
			continue
		}
		if w.selection.matches(item) {
			return item
		}
	}
}

// coalesce counts points that were superseded, unless they may be some that the
// selection does not select.
func (w *Watcher) coalesce(n uint64) {
	if n > 0 && w.group.matched {
		w.request.Meter.coalesce(n)
	}
}

// catchUp begins a sweep in place of log entries that were overwritten.
func (w *Watcher) catchUp() {
	w.request.Meter.runOut()
	w.group.grow()
	// First the position, then the sweep: what is stored in between is in both, and
	// is skipped in the log.
	w.position.Store(w.group.head.Load())
	w.beginSweep()
}

func (w *Watcher) beginSweep() {
	w.sweep = &sweep{
		source: w.hub.source, selection: w.selection, required: samplestore.RequiredLabels(w.selection.Labels), before: w.seen,
	}
}

func (w *Watcher) endSweep() {
	w.seen = w.sweep.covered
	w.sweep = nil
	if w.synced.Load() {
		return
	}
	if w.request.InitialEventsEnd && w.request.NewBookmark != nil &&
		w.send(watch.Event{Type: watch.Bookmark, Object: w.request.NewBookmark(true)}) {
		w.request.Meter.bookmark()
	}
	w.synced.Store(true)
}

// idle says how long the client has left an event untaken; 0 when there is none.
func (w *Watcher) idle() time.Duration {
	if !w.armed.Load() {
		return 0
	}
	return time.Duration(w.hub.agenda.current.Load()-w.progress.Load()) * tick
}

// GetObject returns an object without content: which point it will be is not
// known before it is encoded. Encoders that know CacheableObject do not call it.
func (w *Watcher) GetObject() runtime.Object { return &metav1.PartialObjectMetadata{} }

// GetObjectKind is empty, as it is for objects of an internal version.
func (w *Watcher) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the watcher: there is but one position in the stream.
func (w *Watcher) DeepCopyObject() runtime.Object { return w }
