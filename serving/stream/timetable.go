// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// farewellLead is how long before a client's own timeout the last bookmark is
// sent, as kube-apiserver's watch cache does it.
const farewellLead = 2 * time.Second

// timetable is what happens to a watcher by the clock.
type timetable struct {
	// filed is the agenda's.
	filed int64

	mu sync.Mutex
	// bookmark is when the next bookmark is due; zero where none is wanted.
	bookmark time.Time
	// farewell is when the last one before the client's timeout is due; zero
	// where there is no timeout, and after it was sent.
	farewell time.Time
	// end is when we close, zero for never, and why.
	end time.Time
	why Ending
}

// plan sets the times of a new watcher.
func (w *Watcher) plan(now time.Time, deadline time.Time, limited bool, s *Settings) {
	t := &w.timetable
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.request.Bookmarks {
		// A first interval of its own keeps those that connected together apart.
		t.bookmark = now.Add(w.hub.jitter(s.BookmarkInterval))
	}
	if limited {
		t.farewell = deadline.Add(-min(farewellLead, deadline.Sub(now)/2))
	}
	if s.MaxAge > 0 {
		t.endBy(now.Add(w.hub.jitter(s.MaxAge)), AgedOut)
	}
	if w.request.startsOver() && limited {
		// A clean end would make the reflector watch on without a new list.
		t.endBy(t.farewell, TimedOut)
	}
}

func (t *timetable) endBy(at time.Time, why Ending) {
	if t.end.IsZero() || at.Before(t.end) {
		t.end, t.why = at, why
	}
}

// endBy brings the end forward.
func (w *Watcher) endBy(at time.Time, why Ending) {
	t := &w.timetable
	t.mu.Lock()
	t.endBy(at, why)
	t.mu.Unlock()
	w.hub.agenda.put(w, at)
}

// visit does what is due and returns when to come back. It returns false when
// the watch has ended.
func (w *Watcher) visit(now time.Time, s *Settings) (next time.Time, goOn bool) {
	if w.stopped.Load() {
		return time.Time{}, false
	}
	if idle := w.idle(); s.StallTimeout > 0 && idle >= s.StallTimeout {
		// Whatever it was told before, it did not hear it.
		stalled := Stalled
		w.ending.Store(&stalled)
		if w.request.Abort != nil {
			w.request.Abort()
		}
		w.Stop()
		return time.Time{}, false
	}
	t, reached := &w.timetable, w.hub.agenda.reached
	t.mu.Lock()
	defer t.mu.Unlock()
	if reached(t.end, now) {
		if !w.hasClosed() {
			w.endedBy(t.why)
			w.sayGoodbye()
		}
		// Looked at until it is stopped: the client may never read its goodbye.
		return now.Add(checkInterval), true
	}
	if reached(t.farewell, now) && w.bookmark() {
		t.farewell = time.Time{}
	}
	if reached(t.bookmark, now) {
		w.bookmark()
		t.bookmark = now.Add(s.BookmarkInterval)
	}
	next = now.Add(checkInterval)
	for _, at := range []time.Time{t.bookmark, t.farewell, t.end} {
		if !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	return next, true
}

// checkInterval is how often a watcher is looked at that has nothing else due.
const checkInterval = 15 * time.Second

// bookmark sends a bookmark unless one waits to be taken. It returns false where it
// is too early for one.
func (w *Watcher) bookmark() bool {
	if !w.wantsBookmarks() {
		return true
	}
	// Amid the initial events it would tell the client that it has them all.
	if !w.synced.Load() {
		return false
	}
	bookmark := watch.Event{Type: watch.Bookmark, Object: w.request.NewBookmark(false)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if taken := w.sent - uint64(len(w.events)); w.marked > taken {
		return true
	}
	if w.put(bookmark) {
		w.marked = w.sent
		w.request.Meter.bookmark()
	}
	return true
}

func (w *Watcher) wantsBookmarks() bool { return w.request.Bookmarks && w.request.NewBookmark != nil }

// sayGoodbye sends the last event and ends the stream after it.
//
// A reflector that is told so starts over with a new list, and drops objects
// that are gone, of which a stream of ADDED alone tells nothing. It does so on
// an error, but not when the stream just ends.
func (w *Watcher) sayGoodbye() {
	if w.request.startsOver() {
		status := startOver().Status()
		if w.send(watch.Event{Type: watch.Error, Object: &status}) {
			w.request.Meter.error()
		}
	} else if w.wantsBookmarks() && w.synced.Load() &&
		w.send(watch.Event{Type: watch.Bookmark, Object: w.request.NewBookmark(false)}) {
		// Even if another bookmark waits: this is the last event.
		w.request.Meter.bookmark()
	}
	w.close()
}

func startOver() *apierrors.StatusError {
	err := apierrors.NewGenericServerResponse(http.StatusGatewayTimeout, "watch", schema.GroupResource{}, "",
		"this watch ends here; list again, since a watch does not report objects that are gone", 0, true)
	err.ErrStatus.Reason = metav1.StatusReasonTimeout
	return err
}
