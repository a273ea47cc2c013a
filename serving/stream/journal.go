// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// Limits on the lines of a journal: all of a few watchers are told of, and a
// storm of thousands a second costs a line a second.
const (
	journalRate  = rate.Limit(1)
	journalBurst = 25
)

// maxLogged is how much of what a client chose freely a line repeats, in bytes.
const maxLogged = 256

// Client is who watches, for the log alone.
type Client struct{ User, UserAgent string }

// journal logs that watches begin and end, and what they miss. Lines of one kind do not use up the
// room of another: a storm of clients that connect must not hide those that break.
type journal struct {
	clock                        clock.PassiveClock
	begun, ended, broke, skipped lineLimit
}

// lineLimit is that of the lines of one kind.
type lineLimit struct {
	limit *rate.Limiter

	mu sync.Mutex
	// unlogged counts the lines since the last that the limit held back.
	unlogged int
}

func newJournal(c clock.PassiveClock) *journal {
	newLimit := func() lineLimit { return lineLimit{limit: rate.NewLimiter(journalRate, journalBurst)} }
	return &journal{clock: c, begun: newLimit(), ended: newLimit(), broke: newLimit(), skipped: newLimit()}
}

// allow says whether a line may be written, and how many were not before it.
func (l *lineLimit) allow(now time.Time) (unlogged int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.limit.AllowN(now, 1) {
		l.unlogged++
		return 0, false
	}
	unlogged, l.unlogged = l.unlogged, 0
	return unlogged, true
}

// begin logs that a watch begins.
func (j *journal) begin(w *Watcher, deadline time.Time, limited bool) {
	unlogged, ok := j.begun.allow(j.clock.Now())
	if !ok {
		return
	}
	logger := w.describe(unlogged)
	if limited {
		logger = logger.WithValues("timeout", deadline.Sub(w.began).Round(time.Millisecond))
	}
	logger.Info("Watch began")
}

// end logs that a watch ended.
func (j *journal) end(w *Watcher, e Ending, after time.Duration) {
	kind := &j.ended
	if e.broken() {
		kind = &j.broke
	}
	unlogged, ok := kind.allow(j.clock.Now())
	if !ok {
		return
	}
	w.describe(unlogged).Info("Watch ended", "reason", e, "duration", after.Round(time.Millisecond), "events", w.delivered.Load())
}

// skip logs that a watch goes on without the event of a data point.
func (j *journal) skip(w *Watcher, item Item, err error) {
	unlogged, ok := j.skipped.allow(j.clock.Now())
	if !ok {
		return
	}
	key := item.ItemKey()
	w.describe(unlogged).Error(err, "Cannot encode a data point; the watch goes on without it", "object", klog.KRef(key.Namespace, key.Name))
}

// describe returns a logger that says which watch it is.
func (w *Watcher) describe(unlogged int) klog.Logger {
	logger := w.logger.WithValues("namespace", w.selection.Namespace)
	if m := w.request.Meter; m != nil {
		logger = logger.WithValues("group", m.api.Group, "version", m.api.Version, "resource", m.api.Resource)
	}
	if s := w.selection.Labels; s != nil {
		logger = logger.WithValues("labelSelector", text.Truncate(s.String(), maxLogged))
	}
	if s := w.selection.Fields; s != nil {
		logger = logger.WithValues("fieldSelector", text.Truncate(s.String(), maxLogged))
	}
	logger = logger.WithValues("user", text.Truncate(w.request.Client.User, maxLogged), "userAgent", text.Truncate(w.request.Client.UserAgent, maxLogged),
		"bookmarks", w.request.Bookmarks, "initialEventsEnd", w.request.InitialEventsEnd)
	if unlogged > 0 {
		logger = logger.WithValues("unlogged", unlogged)
	}
	return logger
}
