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

const (
	// logRate and logBurst limit the lines of each kind: a few watches are all logged, and
	// thousands of opens a second cost one line a second.
	logRate  = rate.Limit(1)
	logBurst = 25
	// maxLogged limits each value that a client chose, in bytes.
	maxLogged = 256
)

// Client identifies a client in the log.
type Client struct{ User, UserAgent string }

// logger logs when watches begin and end, and points that they skip. Each kind of line has its
// own limit, so that many new watches do not hide those that broke.
type logger struct {
	clock                         clock.PassiveClock
	begun, ended, failed, skipped logLimit
}

// logLimit limits the lines of one kind.
type logLimit struct {
	limit *rate.Limiter

	mu sync.Mutex
	// unlogged counts the lines that were dropped since the last one.
	unlogged int
}

func newLogger(c clock.PassiveClock) *logger {
	newLimit := func() logLimit { return logLimit{limit: rate.NewLimiter(logRate, logBurst)} }
	return &logger{clock: c, begun: newLimit(), ended: newLimit(), failed: newLimit(), skipped: newLimit()}
}

// allow reports whether a line may be written, and how many were dropped before it.
func (l *logLimit) allow(now time.Time) (unlogged int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.limit.AllowN(now, 1) {
		l.unlogged++
		return 0, false
	}
	unlogged, l.unlogged = l.unlogged, 0
	return unlogged, true
}

func (l *logger) begin(w *Watcher, deadline time.Time, limited bool) {
	unlogged, ok := l.begun.allow(l.clock.Now())
	if !ok {
		return
	}
	line := w.describe(unlogged)
	if limited {
		line = line.WithValues("timeout", deadline.Sub(w.began).Round(time.Millisecond))
	}
	line.Info("Watch began")
}

func (l *logger) end(w *Watcher, r EndReason, after time.Duration) {
	limit := &l.ended
	if r.isError() {
		limit = &l.failed
	}
	unlogged, ok := limit.allow(l.clock.Now())
	if !ok {
		return
	}
	w.describe(unlogged).Info("Watch ended", "reason", r, "duration", after.Round(time.Millisecond), "events", w.delivered.Load())
}

// skip logs that a watch continues without the event of a point.
func (l *logger) skip(w *Watcher, item Item, err error) {
	unlogged, ok := l.skipped.allow(l.clock.Now())
	if !ok {
		return
	}
	key := item.ItemKey()
	w.describe(unlogged).Error(err, "Cannot encode a data point; the watch goes on without it", "object", klog.KRef(key.Namespace, key.Name))
}

// describe returns a logger with the values that identify the watch.
func (w *Watcher) describe(unlogged int) klog.Logger {
	api := w.request.Metrics.api
	watched := w.request.Watched
	if watched == nil {
		watched = []any{"namespace", w.selection.Namespace}
	}
	line := w.logger.WithValues(watched...).WithValues("group", api.Group, "version", api.Version, "resource", api.Resource)
	if s := w.selection.Labels; s != nil {
		line = line.WithValues("labelSelector", text.Truncate(s.String(), maxLogged))
	}
	if s := w.selection.Fields; s != nil {
		line = line.WithValues("fieldSelector", text.Truncate(s.String(), maxLogged))
	}
	line = line.WithValues("user", text.Truncate(w.request.Client.User, maxLogged), "userAgent", text.Truncate(w.request.Client.UserAgent, maxLogged),
		"bookmarks", w.request.Bookmarks, "initialEventsEnd", w.request.InitialEventsEnd)
	if unlogged > 0 {
		line = line.WithValues("unlogged", unlogged)
	}
	return line
}
