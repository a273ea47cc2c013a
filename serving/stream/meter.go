// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"time"

	"k8s.io/component-base/metrics"
)

// API is what metrics and logs tell watches apart by. The values become labels,
// so there must be few: Resource stays empty where clients name the resource, as
// in custom and external metrics.
type API struct{ Group, Version, Resource string }

// Meter counts the watches of one API in the process's metrics. Its series are
// looked up once, so that an event costs no search by labels. A nil Meter counts
// nothing.
type Meter struct {
	api API

	began, coalesced, outrun       metrics.CounterMetric
	initial, live, bookmarks, errs metrics.CounterMetric
	stalled, writes, encodes       metrics.CounterMetric
	open, pending, memory          metrics.GaugeMetric
	lasted, latency, first         metrics.ObserverMetric
}

// The types of events and of errors, as labels.
const (
	eventInitial  = "initial"
	eventLive     = "live"
	eventBookmark = "bookmark"
	eventError    = "error"

	errorEncode = "EncodeFailed"
)

// NewMeter returns the meter of an API. It counts only where the metrics were
// registered before. All series begin at zero, so that a rate sees the first.
func NewMeter(api API) *Meter {
	labels := []string{api.Group, api.Version, api.Resource}
	counter := func(v *metrics.CounterVec, more ...string) metrics.CounterMetric {
		return v.WithLabelValues(append(labels[:3:3], more...)...)
	}
	for _, reason := range refusals {
		counter(errorsTotal, string(reason))
	}
	return &Meter{
		api:       api,
		began:     counter(connectionsTotal),
		coalesced: counter(coalescedTotal),
		outrun:    counter(outrunTotal),
		initial:   counter(eventsSent, eventInitial),
		live:      counter(eventsSent, eventLive),
		bookmarks: counter(eventsSent, eventBookmark),
		errs:      counter(eventsSent, eventError),
		stalled:   counter(errorsTotal, string(Stalled)),
		writes:    counter(errorsTotal, string(WriteFailed)),
		encodes:   counter(errorsTotal, errorEncode),
		open:      connectionsOpen.WithLabelValues(labels...),
		pending:   pendingPoints.WithLabelValues(labels...),
		memory:    memoryBytes.WithLabelValues(labels...),
		lasted:    connectionsDuration.WithLabelValues(labels...),
		latency:   deliveryLatency.WithLabelValues(labels...),
		first:     firstEvent.WithLabelValues(labels...),
	}
}

func (m *Meter) begin() {
	if m != nil {
		m.began.Inc()
		m.open.Inc()
	}
}

func (m *Meter) end(e Ending, after time.Duration) {
	if m == nil {
		return
	}
	m.open.Dec()
	m.lasted.Observe(after.Seconds())
	switch e {
	case Stalled:
		m.stalled.Inc()
	case WriteFailed:
		m.writes.Inc()
	}
}

// deliverInitial counts an event of a data point that was there before the watch.
func (m *Meter) deliverInitial() {
	if m != nil {
		m.initial.Inc()
	}
}

// deliverLive counts an event of a data point that was stored some time ago.
func (m *Meter) deliverLive(latency time.Duration) {
	if m != nil {
		m.live.Inc()
		m.latency.Observe(latency.Seconds())
	}
}

// deliverFirst counts the first data point of a watch that was asked for some
// time ago.
func (m *Meter) deliverFirst(after time.Duration) {
	if m != nil {
		m.first.Observe(after.Seconds())
	}
}

func (m *Meter) bookmark() {
	if m != nil {
		m.bookmarks.Inc()
	}
}

func (m *Meter) error() {
	if m != nil {
		m.errs.Inc()
	}
}

// skip counts an event that could not be encoded.
func (m *Meter) skip() {
	if m != nil {
		m.encodes.Inc()
	}
}

func (m *Meter) coalesce(n uint64) {
	if m != nil {
		m.coalesced.Add(float64(n))
	}
}

func (m *Meter) runOut() {
	if m != nil {
		m.outrun.Inc()
	}
}
