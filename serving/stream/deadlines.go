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

const (
	// lastBookmarkLead is how long before a client's own timeout the last bookmark is sent,
	// as in kube-apiserver's watch cache.
	lastBookmarkLead = 2 * time.Second
	// checkInterval is the longest time between two checks of a watcher.
	checkInterval = 15 * time.Second
)

// deadlines are the times at which a watcher sends a bookmark or ends. Zero times are unset.
type deadlines struct {
	mu sync.Mutex
	// bookmark is when the next bookmark is due.
	bookmark time.Time
	// lastBookmark is when the one before the client's timeout is due, until it is sent.
	lastBookmark time.Time
	// end is when the server ends the watch, and reason is why.
	end    time.Time
	reason EndReason
}

// setDeadlines initializes the deadlines of a new watcher. timeout is the client's if limited.
func (w *Watcher) setDeadlines(now, timeout time.Time, limited bool, s *Settings) {
	d := &w.deadlines
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.request.Bookmarks {
		// Jitter spreads the bookmarks of watches that were opened together.
		d.bookmark = now.Add(w.hub.jitter(s.BookmarkInterval))
	}
	if limited {
		d.lastBookmark = timeout.Add(-min(lastBookmarkLead, timeout.Sub(now)/2))
	}
	if s.MaxAge > 0 {
		d.endBy(now.Add(w.hub.jitter(s.MaxAge)), AgedOut)
	}
	if w.request.relists() && limited {
		// After a clean end the reflector would watch again without a new list.
		d.endBy(d.lastBookmark, TimedOut)
	}
}

func (d *deadlines) endBy(at time.Time, reason EndReason) {
	if d.end.IsZero() || at.Before(d.end) {
		d.end, d.reason = at, reason
	}
}

// endBy ends the watch at a time, unless it ends earlier.
func (w *Watcher) endBy(at time.Time, reason EndReason) {
	w.deadlines.mu.Lock()
	w.deadlines.endBy(at, reason)
	w.deadlines.mu.Unlock()
	w.hub.due.put(w, at)
}

// checkDeadlines does what is due and returns the time of the next check, or false if the watch
// has ended.
func (w *Watcher) checkDeadlines(now time.Time, s *Settings) (next time.Time, ok bool) {
	if w.stopped.Load() {
		return time.Time{}, false
	}
	if s.StallTimeout > 0 && w.idle() >= s.StallTimeout {
		// It replaces an earlier reason: the client has not read the final event.
		w.reason.Store(new(Stalled))
		if w.request.Abort != nil {
			w.request.Abort()
		}
		w.Stop()
		return time.Time{}, false
	}
	d, reached := &w.deadlines, w.hub.due.reached
	d.mu.Lock()
	defer d.mu.Unlock()
	if reached(d.end, now) {
		if !w.hasClosed() {
			w.setEndReason(d.reason)
			w.sendFinalEvent()
		}
		// Checked until it is stopped: the client may never read the final event.
		return now.Add(checkInterval), true
	}
	if reached(d.lastBookmark, now) && w.sendBookmark() {
		d.lastBookmark = time.Time{}
	}
	if reached(d.bookmark, now) {
		w.sendBookmark()
		d.bookmark = now.Add(s.BookmarkInterval)
	}
	next = now.Add(checkInterval)
	for _, at := range []time.Time{d.bookmark, d.lastBookmark, d.end} {
		if !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	return next, true
}

// sendBookmark sends a bookmark unless one is still unread. It returns false while the initial
// events are not complete, since a bookmark would tell the client that they are.
func (w *Watcher) sendBookmark() bool {
	if !w.wantsBookmarks() {
		return true
	}
	if !w.synced.Load() {
		return false
	}
	bookmark := watch.Event{Type: watch.Bookmark, Object: w.request.NewBookmark(false)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if received := w.sent - uint64(len(w.events)); w.bookmarked > received {
		return true
	}
	if w.sendLocked(bookmark) {
		w.bookmarked = w.sent
		w.request.Metrics.bookmarks.Inc()
	}
	return true
}

func (w *Watcher) wantsBookmarks() bool { return w.request.Bookmarks && w.request.NewBookmark != nil }

// sendFinalEvent sends the last event and closes the stream after it. A reflector gets an ERROR,
// on which it lists again and drops deleted objects; a stream that just ends does not make it do
// so, and a stream of ADDED events does not tell it what is gone.
func (w *Watcher) sendFinalEvent() {
	if w.request.relists() {
		if w.send(watch.Event{Type: watch.Error, Object: new(relistError().Status())}) {
			w.request.Metrics.errorEvents.Inc()
		}
	} else if w.wantsBookmarks() && w.synced.Load() &&
		w.send(watch.Event{Type: watch.Bookmark, Object: w.request.NewBookmark(false)}) {
		// Sent even if another bookmark is unread.
		w.request.Metrics.bookmarks.Inc()
	}
	w.close()
}

func relistError() *apierrors.StatusError {
	err := apierrors.NewGenericServerResponse(http.StatusGatewayTimeout, "watch", schema.GroupResource{}, "",
		"this watch ends here; list again, since a watch does not report objects that are gone", 0, true)
	err.ErrStatus.Reason = metav1.StatusReasonTimeout
	return err
}
