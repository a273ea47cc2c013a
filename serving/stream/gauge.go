// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// gaugeInterval is how often the gauges are set that go through all watches.
const gaugeInterval = 5 * time.Second

// gauges are what is told of all open watches of an API.
type gauges struct {
	next time.Time
	// byMeter keeps a meter of which no watch is left, to set it to zero.
	byMeter map[*Meter]*extent
}

// extent is what the open watches of an API take.
type extent struct {
	pending uint64
	memory  float64
}

// gauge sets the gauges that go through all watches, when it is time.
func (h *Hub) gauge(now time.Time) {
	g := &h.gauges
	if now.Before(g.next) {
		return
	}
	g.next = now.Add(gaugeInterval)
	if g.byMeter == nil {
		g.byMeter = map[*Meter]*extent{}
	}
	for _, e := range g.byMeter {
		*e = extent{}
	}
	h.measure(g.byMeter)
	for m, e := range g.byMeter {
		m.pending.Set(float64(e.pending))
		m.memory.Set(e.memory)
	}
}

// measure adds up all watches by their meters.
func (h *Hub) measure(byMeter map[*Meter]*extent) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for w := range h.watchers {
		m := w.request.Meter
		if m == nil {
			continue
		}
		if byMeter[m] == nil {
			byMeter[m] = &extent{}
		}
	}
	for _, g := range h.groups {
		g.measure(byMeter)
	}
}

// What a watch takes, in bytes.
var (
	// perWatch is the watcher, its channel and its places in maps.
	perWatch = float64(sizeOf[Watcher]() + 96 + backlog*sizeOf[watch.Event]() + 3*4*sizeOf[*Watcher]())
	// perGroup is shared by the watches of one selection, whose log and selectors come
	// on top.
	perGroup = float64(sizeOf[group]() + 1024)
)

// perSelectorByte is what a byte of a selector takes: the identifier, the text of which
// the parsed requirements are parts, and those. Measured: 3 with a thousand values, 8
// with a thousand requirements.
const perSelectorByte = 6

// perStream is what the HTTP server keeps for a watch: the goroutine's stack, the
// request and its context, and the buffers of an HTTP/2 stream. It is the resident
// memory of a watch over shared connections after it had events, as measured
// (see docs/performance.md), less the above.
const perStream = 60 << 10

func sizeOf[T any]() uintptr { return reflect.TypeFor[T]().Size() }

// measure adds what the group's watches have before them, and their memory. The hub keeps
// them from ending.
func (g *group) measure(byMeter map[*Meter]*extent) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	shared := perGroup + float64(len(g.log))*float64(sizeOf[entry]()) + perSelectorByte*float64(len(g.id))
	for w := range g.watchers {
		if e := byMeter[w.request.Meter]; e != nil {
			e.pending += g.pending(w)
			e.memory += perStream + perWatch + shared/float64(len(g.watchers))
		}
	}
}

// pending returns how many points are logged for a watcher that it has not come to; a
// log that has outrun it has no more to tell. mu must be held.
func (g *group) pending(w *Watcher) uint64 {
	head, position := g.head.Load(), w.position.Load()
	if head < position { // read at different moments
		return 0
	}
	return min(head-position, uint64(len(g.log)))
}
