// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
)

// Settings of a hub; they may change while it runs.
type Settings struct {
	// BookmarkInterval is the time between bookmarks.
	BookmarkInterval time.Duration
	// MaxAge limits the duration of a watch, minus a random part of up to a quarter; 0 means no
	// limit.
	MaxAge time.Duration
	// StallTimeout ends the watch of a client that has not read a pending event for so long; 0
	// means never.
	StallTimeout time.Duration
}

// Request is a request for a watch.
type Request struct {
	Selection Selection
	// Bookmarks says that the client accepts BOOKMARK events.
	Bookmarks bool
	// InitialEventsEnd requests a bookmark after the initial events. It must be set only if the
	// client asked for that and for bookmarks: otherwise the API server's watch handler panics.
	InitialEventsEnd bool
	// CleanEnd ends the watch without an error in spite of InitialEventsEnd, for clients other
	// than reflectors, which need not list again.
	CleanEnd bool
	// NewBookmark returns the object of a BOOKMARK event, annotated if it ends the initial events.
	NewBookmark func(initialEventsEnd bool) runtime.Object
	// Abort breaks the connection of a client that does not read, since nothing else unblocks
	// the goroutine that writes to it. It may be nil.
	Abort func()
	// Metrics counts the watch. It must not be shared between hubs.
	Metrics *Metrics
	// Client is logged.
	Client Client
	// Watched is logged: keys and values that say what is watched, if it is not the selection's
	// namespace.
	Watched []any
	// Received is when the request was received; zero means now.
	Received time.Time
	// Release is called once, when the watch has ended or was not opened. It may be nil.
	Release func()
}

// relists reports whether the client is told to list again when the watch ends.
func (r *Request) relists() bool { return r.InitialEventsEnd && !r.CleanEnd }

// Hub distributes the points of one source to watchers.
type Hub struct {
	source   Source
	clock    clock.WithTicker
	random   func() float64
	due      dueQueue
	logger   *logger
	settings atomic.Pointer[Settings]

	// mu guards the groups. Publish read-locks it.
	mu       sync.RWMutex
	groups   map[string]*group
	index    *index
	watchers map[*Watcher]struct{}
	draining bool
	// opened is set by the first watch, and wakes Run.
	opened wake.Signal

	// touched is reused by Publish.
	touched []*group
	// gauges belong to Run.
	gauges gauges
}

// NewHub returns a hub over a source. random returns numbers in [0, 1) and must be safe for
// concurrent use. Bookmarks and ends of watches need Run.
func NewHub(source Source, c clock.WithTicker, random func() float64, initial Settings) *Hub {
	h := &Hub{
		source: source, clock: c, random: random, due: dueQueue{start: c.Now()}, logger: newLogger(c),
		groups: map[string]*group{}, index: newIndex(), watchers: map[*Watcher]struct{}{}, opened: wake.NewSignal(),
	}
	h.settings.Store(&initial)
	return h
}

// now returns a monotonic time, which does not jump when the wall clock is set.
func (h *Hub) now() time.Time { return h.due.start.Add(h.clock.Since(h.due.start)) }

// Apply changes the settings. Open watches keep their end.
func (h *Hub) Apply(s Settings) { h.settings.Store(&s) }

// Publish notifies the watchers of stored points. The source calls it in the order of their
// numbers, one call at a time, after they became visible. It does not wait for clients.
func (h *Hub) Publish(items []Item) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if len(h.watchers) == 0 {
		return
	}
	for _, item := range items {
		h.index.each(item, func(g *group) {
			g.append(item)
			if !g.touched {
				g.touched = true
				h.touched = append(h.touched, g)
			}
		})
	}
	for i, g := range h.touched {
		g.touched = false
		g.wake()
		h.touched[i] = nil
	}
	h.touched = h.touched[:0]
}

// Watch opens a watch: it sends all selected points of the source, and then each new one. It
// ends with the context, or by Stop.
func (h *Hub) Watch(ctx context.Context, request Request) (*Watcher, error) {
	selection := request.Selection.Normalize()
	now := h.now()
	if request.Received.IsZero() {
		request.Received = now
	}
	w := &Watcher{
		hub: h, request: request, selection: selection, began: now, logger: klog.FromContext(ctx),
		events: make(chan watch.Event, eventBuffer),
	}
	w.progress.Store(h.due.current.Load())
	if err := h.add(w); err != nil {
		if request.Release != nil {
			request.Release()
		}
		return nil, err
	}
	settings := h.settings.Load()
	timeout, limited := ctx.Deadline()
	request.Metrics.begin()
	h.logger.begin(w, timeout, limited)
	w.setDeadlines(now, timeout, limited, settings)
	w.wake()
	if next, ok := w.checkDeadlines(now, settings); ok {
		h.due.put(w, next)
	}
	w.stopWith(ctx)
	return w, nil
}

// add adds a watcher to the group of its selection.
func (h *Hub) add(w *Watcher) error {
	// Before the lock, on which Publish waits: long selectors take a while.
	entry, err := newIndexEntry(w.selection)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return apierrors.NewTooManyRequests("this server shuts down; watch again, which leads to another", retryWhenDraining.pick(h.random))
	}
	g := h.groups[entry.id]
	if g == nil {
		g = newGroup(w.selection, entry)
		h.groups[entry.id] = g
		h.index.add(g)
	}
	w.group = g
	// All watchers of a group share one copy of the selection.
	w.selection, w.request.Selection = g.selection, Selection{}
	g.join(w)
	// Before Publish can reach the watcher: from then on its reader owns the scan.
	w.startScan()
	if len(h.watchers) == 0 {
		// Run has not kept the time, by which the watcher would seem to have stalled.
		h.due.current.Store(h.due.tickAt(h.now()))
		h.opened.Set()
	}
	h.watchers[w] = struct{}{}
	return nil
}

func (h *Hub) remove(w *Watcher) {
	h.due.remove(w)
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.watchers[w]; !ok {
		return
	}
	delete(h.watchers, w)
	if w.group.leave(w) {
		delete(h.groups, w.group.id)
		h.index.remove(w.group)
	}
}

// Run sends bookmarks and ends watches when they are due, until the context ends. It sleeps while
// there is no watch: four wake-ups a second in each hub were half of what an idle process does.
func (h *Hub) Run(ctx context.Context) {
	for wait := time.Duration(math.MaxInt64); h.opened.Wait(ctx, h.clock, wait); {
		now := h.now()
		wait = tick - now.Sub(h.due.start)%tick
		if open, _ := h.Watchers(); open == 0 {
			wait = math.MaxInt64
			h.gauges.next = now // they must not keep what was last open
		}
		h.advance(now)
	}
}

// advance checks the deadlines of the watchers that are due.
func (h *Hub) advance(now time.Time) {
	settings := h.settings.Load()
	for _, w := range h.due.advance(now) {
		if next, ok := w.checkDeadlines(now, settings); ok {
			h.due.put(w, next)
		}
	}
	h.setGauges(now)
}

// Drain rejects new watches and ends the open ones, spread over a duration so that their clients
// do not all reach the other replicas at once.
func (h *Hub) Drain(over time.Duration) {
	h.mu.Lock()
	h.draining = true
	h.mu.Unlock()
	h.endAll(over, ShutDown)
}

// endAll ends the open watches, spread over a duration.
func (h *Hub) endAll(over time.Duration, reason EndReason) {
	now := h.now()
	h.mu.RLock()
	defer h.mu.RUnlock()
	for w := range h.watchers {
		w.endBy(now.Add(time.Duration(h.random()*float64(over))), reason)
	}
}

// Watchers returns the number of open watches and of their different selections.
func (h *Hub) Watchers() (watchers, selections int) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.watchers), len(h.groups)
}

func (h *Hub) isDraining() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.draining
}

// jitter returns a random duration from three quarters of d to d.
func (h *Hub) jitter(d time.Duration) time.Duration {
	return time.Duration((0.75 + 0.25*h.random()) * float64(d))
}
