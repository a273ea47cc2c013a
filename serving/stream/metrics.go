// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"k8s.io/component-base/metrics"
)

const (
	// metricsNamespace is that of KEP-1013, which names four of these: they are
	// the same for every implementation of the metrics APIs.
	metricsNamespace = "metrics_api"
	watchSubsystem   = "watch"
)

// apiLabels tell APIs apart. No label has the value of a selector, the name of an
// object or of a client: none of these is bounded.
var apiLabels = []string{"group", "version", "resource"}

// latencyBuckets are in seconds, for what is due in tenths of a second.
var latencyBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

func and(labels ...string) []string {
	return append(apiLabels[:len(apiLabels):len(apiLabels)], labels...)
}

var (
	connectionsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "connections_total",
		Help:           "Number of watches that began.",
		StabilityLevel: metrics.ALPHA,
	}, apiLabels)
	connectionsOpen = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "connections_open",
		Help:           "Number of watches that are open.",
		StabilityLevel: metrics.ALPHA,
	}, apiLabels)
	connectionsDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "duration_seconds",
		Help:           "Time in seconds that watches were open, counted when they end.",
		Buckets:        []float64{1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 2700, 3600, 7200, 14400},
		StabilityLevel: metrics.ALPHA,
	}, apiLabels)
	errorsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "errors_total",
		Help: "Number of watches that were refused or broke, by type. Refused: the reason of the answer's HTTP code, such as TooManyRequests. " +
			"Broken: Stalled, the client took nothing for too long; WriteFailed, the connection broke while an event was written. " +
			"And the number of events that could not be encoded, EncodeFailed, which a watch goes on without.",
		StabilityLevel: metrics.ALPHA,
	}, and("type"))
	eventsSent = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "events_sent_total",
		Help: "Number of events sent to watches, by type: initial, a data point that was there when the watch began; live, one that came later; " +
			"bookmark; error, which ends the watch.",
		StabilityLevel: metrics.ALPHA,
	}, and("type"))

	requestsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Name: "requests_total",
		Help: "Number of requests by verb (watch, list or get) and HTTP code, counted when the answer begins: " +
			"apiserver_request_total has a watch only once it has ended.",
		StabilityLevel: metrics.ALPHA,
	}, and("verb", "code"))
	limitedTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "limited_total",
		Help: "Number of watches of all APIs that were refused with 429, by the limit that was met: " +
			"maxConnections, maxConnectionsPerUser, or openRate, the rate at which one user opens them.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"limit"})

	deliveryLatency = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "delivery_latency_seconds",
		Help: "Time in seconds from when a data point was stored until its event was written to a watch's connection. " +
			"Data points that were there when the watch began do not count.",
		Buckets:        latencyBuckets,
		StabilityLevel: metrics.ALPHA,
	}, apiLabels)
	firstEvent = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "first_event_seconds",
		Help: "Time in seconds from when a watch was requested until the first data point was written to it. " +
			"A watch that selects none at its beginning does not count: its first event waits for data, not for the server.",
		Buckets:        latencyBuckets,
		StabilityLevel: metrics.ALPHA,
	}, apiLabels)

	coalescedTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "coalesced_points_total",
		Help:           "Number of data points that a watch skipped, since a newer one of the same object had come before the client took it.",
		StabilityLevel: metrics.ALPHA,
	}, apiLabels)
	outrunTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "outrun_total",
		Help: "Number of times that a watch fell further behind than the log of its selection reaches and went through the store instead. " +
			"It loses no object's newest data point by that.",
		StabilityLevel: metrics.ALPHA,
	}, apiLabels)
	pendingPoints = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "pending_points",
		Help:           "Number of data points, over all open watches, that are logged for a watch and not yet written to it, as of a few seconds ago.",
		StabilityLevel: metrics.ALPHA,
	}, apiLabels)
	memoryBytes = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "memory_bytes",
		Help: "Estimated memory in bytes that open watches take, as of a few seconds ago: the size of what this process keeps for each " +
			"(position, channel, selection, its share of the log) and a constant for the HTTP stream and its goroutine, as it was measured. " +
			"Divided by metrics_api_watch_connections_open it is the memory of a connection; process_resident_memory_bytes has the truth of all.",
		StabilityLevel: metrics.ALPHA,
	}, apiLabels)
)

// RegisterMetrics registers the metrics, for example with
// legacyregistry.MustRegister. Without it they cost nothing and count nothing.
func RegisterMetrics(register func(...metrics.Registerable)) {
	register(connectionsTotal, connectionsOpen, connectionsDuration, errorsTotal, eventsSent, requestsTotal, limitedTotal,
		deliveryLatency, firstEvent, coalescedTotal, outrunTotal, pendingPoints, memoryBytes)
}
