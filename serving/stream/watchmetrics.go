// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/component-base/metrics"
)

// API identifies an API in metrics and logs. The values are labels and must be bounded: Resource
// is empty where clients choose it, as in custom and external metrics.
type API struct{ Group, Version, Resource string }

// Metrics are the metrics of the watches of one API. Label lookups are done once.
type Metrics struct {
	api API

	began, coalesced, rescans                         metrics.CounterMetric
	initialEvents, liveEvents, bookmarks, errorEvents metrics.CounterMetric
	stalled, writeErrors, encodeErrors                metrics.CounterMetric
	open, pending, memory                             metrics.GaugeMetric
	duration, latency, firstEvent                     metrics.ObserverMetric
}

// The values of the label type, besides EndReasons.
const (
	eventInitial  = "initial"
	eventLive     = "live"
	eventBookmark = "bookmark"
	eventError    = "error"

	errorEncode = "EncodeFailed"
)

// NewMetrics returns the metrics of an API. They count only if they were registered before. All
// series start at zero, so that a rate includes the first increment.
func NewMetrics(api API) *Metrics {
	labels := []string{api.Group, api.Version, api.Resource}
	counter := func(v *metrics.CounterVec, more ...string) metrics.CounterMetric {
		return v.WithLabelValues(append(labels[:3:3], more...)...)
	}
	for _, reason := range statusReasons {
		counter(errorsTotal, string(reason))
	}
	return &Metrics{
		api:           api,
		began:         counter(connectionsTotal),
		coalesced:     counter(coalescedTotal),
		rescans:       counter(rescansTotal),
		initialEvents: counter(eventsSent, eventInitial),
		liveEvents:    counter(eventsSent, eventLive),
		bookmarks:     counter(eventsSent, eventBookmark),
		errorEvents:   counter(eventsSent, eventError),
		stalled:       counter(errorsTotal, string(Stalled)),
		writeErrors:   counter(errorsTotal, string(WriteFailed)),
		encodeErrors:  counter(errorsTotal, errorEncode),
		open:          connectionsOpen.WithLabelValues(labels...),
		pending:       pendingPoints.WithLabelValues(labels...),
		memory:        memoryBytes.WithLabelValues(labels...),
		duration:      connectionsDuration.WithLabelValues(labels...),
		latency:       deliveryLatency.WithLabelValues(labels...),
		firstEvent:    firstEvent.WithLabelValues(labels...),
	}
}

func (m *Metrics) begin() {
	m.began.Inc()
	m.open.Inc()
}

func (m *Metrics) end(r EndReason, after time.Duration) {
	m.open.Dec()
	m.duration.Observe(after.Seconds())
	switch r {
	case Stalled:
		m.stalled.Inc()
	case WriteFailed:
		m.writeErrors.Inc()
	}
}

// gaugeInterval is how often the gauges over all watches are set.
const gaugeInterval = 5 * time.Second

// gauges are sums over the open watches of each API.
type gauges struct {
	next time.Time
	// usage keeps APIs without open watches, to set them to zero.
	usage map[*Metrics]*usage
}

type usage struct {
	pending uint64
	memory  float64
}

// setGauges sets the gauges over all watches once per gaugeInterval.
func (h *Hub) setGauges(now time.Time) {
	g := &h.gauges
	if now.Before(g.next) {
		return
	}
	g.next = now.Add(gaugeInterval)
	if g.usage == nil {
		g.usage = map[*Metrics]*usage{}
	}
	for _, u := range g.usage {
		*u = usage{}
	}
	h.mu.RLock()
	for _, group := range h.groups {
		group.addUsage(g.usage)
	}
	h.mu.RUnlock()
	for m, u := range g.usage {
		m.pending.Set(float64(u.pending))
		m.memory.Set(u.memory)
	}
}

// The memory of a watch, in bytes.
var (
	// perWatch is the watcher, its channel and its entries in maps.
	perWatch = float64(sizeOf[Watcher]() + 96 + eventBuffer*sizeOf[watch.Event]() + 3*4*sizeOf[*Watcher]())
	// perGroup is shared by the watches of one selection, without its log and selectors.
	perGroup = float64(sizeOf[group]() + 1024)
)

const (
	// perSelectorByte is the memory per byte of a selector: the identifier, and the text that the
	// parsed requirements refer to. Measured: 3 with a thousand values, 8 with a thousand
	// requirements.
	perSelectorByte = 6
	// perStream is what the HTTP server keeps for a watch: the goroutine's stack, the request and
	// its context, and the buffers of an HTTP/2 stream. Measured as the resident memory of a watch
	// over shared connections after it had events (see docs/reference/performance.md), minus the above.
	perStream = 60 << 10
)

func sizeOf[T any]() uintptr { return reflect.TypeFor[T]().Size() }

// addUsage adds the pending points and the memory of the group's watches.
func (g *group) addUsage(to map[*Metrics]*usage) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	shared := perGroup + float64(len(g.log))*float64(sizeOf[logEntry]()) + perSelectorByte*float64(len(g.id))
	for w := range g.watchers {
		u := to[w.request.Metrics]
		if u == nil {
			u = &usage{}
			to[w.request.Metrics] = u
		}
		u.pending += g.pending(w)
		u.memory += perStream + perWatch + shared/float64(len(g.watchers))
	}
}

// pending returns the number of log entries that the watcher has not read, at most those in the
// log. mu must be held.
func (g *group) pending(w *Watcher) uint64 {
	head, position := g.head.Load(), w.position.Load()
	if head < position { // loaded at different moments
		return 0
	}
	return min(head-position, uint64(len(g.log)))
}
