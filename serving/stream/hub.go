// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Settings of a hub; they may change while it runs.
type Settings struct {
	// BookmarkInterval is the time between bookmarks.
	BookmarkInterval time.Duration
	// MaxAge is the longest that a watch lasts, minus up to a quarter by chance;
	// 0 for as long as the client asks for.
	MaxAge time.Duration
	// StallTimeout ends the watch of a client that takes nothing for so long
	// while there is something to take; 0 for never.
	StallTimeout time.Duration
}

// Request is a watch that was asked for.
type Request struct {
	Selection Selection
	// Bookmarks says that the client understands BOOKMARK events.
	Bookmarks bool
	// InitialEventsEnd says that a bookmark is to follow the initial events. It
	// must not be set unless the client asked for both that and bookmarks: the
	// API server's watch handler panics on one that was not asked for.
	InitialEventsEnd bool
	// CleanEnd ends the watch without an error, although it has InitialEventsEnd:
	// for clients that do not list by watching, as reflectors do, and so are not to
	// start over.
	CleanEnd bool
	// NewBookmark makes the object of a BOOKMARK event; the one that ends the
	// initial events is annotated.
	NewBookmark func(initialEventsEnd bool) runtime.Object
	// Abort breaks the connection of a client that does not read, where nothing
	// else would wake the goroutine that writes to it; may be nil.
	Abort func()
	// Meter counts the watch; nil counts it nowhere. It belongs to one hub.
	Meter *Meter
	// Client is who watches.
	Client Client
	// Received is when the request came; zero for now.
	Received time.Time
	// Release is called once, when the watch has ended; may be nil.
	Release func()
}

// startsOver says that the client is to list again after the watch.
func (r *Request) startsOver() bool { return r.InitialEventsEnd && !r.CleanEnd }

// Hub distributes the points of one source.
type Hub struct {
	source   Source
	clock    clock.WithTicker
	random   func() float64
	agenda   *agenda
	journal  *journal
	settings atomic.Pointer[Settings]

	// mu guards the groups. Publish holds it for reading.
	mu       sync.RWMutex
	groups   map[string]*group
	index    *index
	watchers map[*Watcher]struct{}
	closing  bool

	// touched is Publish's, kept for its memory.
	touched []*group
	// gauges are Run's.
	gauges gauges
}

// NewHub returns a hub over a source. random returns numbers in [0, 1) and may be
// called by several goroutines. Run keeps its time.
func NewHub(source Source, c clock.WithTicker, random func() float64, initial Settings) *Hub {
	h := &Hub{
		source: source, clock: c, random: random, agenda: newAgenda(c.Now()), journal: newJournal(c),
		groups: map[string]*group{}, index: newIndex(), watchers: map[*Watcher]struct{}{},
	}
	h.settings.Store(&initial)
	return h
}

// now is the time by which everything happens here: a monotonic one, whatever becomes
// of the time of day.
func (h *Hub) now() time.Time { return h.agenda.begin.Add(h.clock.Since(h.agenda.begin)) }

// Apply changes the settings. Watches that are open keep the end they have.
func (h *Hub) Apply(s Settings) { h.settings.Store(&s) }

// Publish tells the watchers of points that the source has stored. The source
// calls it in the order of their numbers, one call at a time, after they became
// visible. It waits for no client.
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

// Watch begins a watch: all that the source has and the request selects, and then
// each new point. It ends with the context, or by Stop.
func (h *Hub) Watch(ctx context.Context, request Request) (*Watcher, error) {
	selection := request.Selection.Normalize()
	now := h.now()
	if request.Received.IsZero() {
		request.Received = now
	}
	w := &Watcher{
		hub: h, request: request, selection: selection, began: now, logger: klog.FromContext(ctx),
		events: make(chan watch.Event, backlog),
	}
	w.progress.Store(h.agenda.current.Load())
	if err := h.add(w); err != nil {
		if request.Release != nil {
			request.Release()
		}
		return nil, err
	}
	settings := h.settings.Load()
	deadline, limited := ctx.Deadline()
	request.Meter.begin()
	h.journal.begin(w, deadline, limited)
	w.plan(now, deadline, limited, settings)
	w.wake()
	if next, goOn := w.visit(now, settings); goOn {
		h.agenda.put(w, next)
	}
	w.bind(ctx)
	return w, nil
}

// add enters a watcher into its group.
func (h *Hub) add(w *Watcher) error {
	// Long selectors take a while to go through: not under the lock, for which
	// Publish waits.
	filed, err := file(w.selection)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return apierrors.NewTooManyRequests("this server shuts down; watch again, which leads to another", whenShutDown.pick(h.random))
	}
	g := h.groups[filed.id]
	if g == nil {
		g = newGroup(w.selection, filed)
		h.groups[filed.id] = g
		h.index.add(g)
	}
	w.group = g
	// One copy of the selection for all of the group.
	w.selection, w.request.Selection = g.selection, Selection{}
	g.join(w)
	// Before Publish can reach it: from then on the sweep is its reader's.
	w.beginSweep()
	h.watchers[w] = struct{}{}
	return nil
}

func (h *Hub) remove(w *Watcher) {
	h.agenda.remove(w)
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, there := h.watchers[w]; !there {
		return
	}
	delete(h.watchers, w)
	if w.group.leave(w) {
		delete(h.groups, w.group.id)
		h.index.remove(w.group)
	}
}

// Run keeps the hub's time until the context ends.
func (h *Hub) Run(ctx context.Context) {
	ticker := h.clock.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			h.advance(h.now())
		}
	}
}

// advance does all that is due.
func (h *Hub) advance(now time.Time) {
	settings := h.settings.Load()
	for _, w := range h.agenda.take(now) {
		if next, goOn := w.visit(now, settings); goOn {
			h.agenda.put(w, next)
		}
	}
	h.gauge(now)
}

// Drain refuses new watches and ends those that are open, spread over a time so
// that their clients do not all reach the other replicas at once.
func (h *Hub) Drain(over time.Duration) {
	h.mu.Lock()
	h.closing = true
	h.mu.Unlock()
	h.endAll(over, ShutDown)
}

// EndAll ends the watches that are open, spread over a time, since watches are
// turned off.
func (h *Hub) EndAll(over time.Duration) { h.endAll(over, Disabled) }

func (h *Hub) endAll(over time.Duration, why Ending) {
	now := h.now()
	h.mu.RLock()
	defer h.mu.RUnlock()
	for w := range h.watchers {
		w.endBy(now.Add(time.Duration(h.random()*float64(over))), why)
	}
}

// Watchers returns how many watches are open, and of how many selections.
func (h *Hub) Watchers() (watchers, selections int) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.watchers), len(h.groups)
}

func (h *Hub) shutsDown() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.closing
}

// jitter returns three to four quarters of a duration.
func (h *Hub) jitter(d time.Duration) time.Duration {
	return time.Duration((0.75 + 0.25*h.random()) * float64(d))
}
