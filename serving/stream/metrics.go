// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"k8s.io/component-base/metrics"
)

const (
	// metricsNamespace is that of KEP-1013, which defines connections_total, duration_seconds,
	// errors_total and events_sent_total for every implementation of the metrics APIs.
	metricsNamespace = "metrics_api"
	watchSubsystem   = "watch"
)

// apiLabels identify an API. No label has a selector or the name of an object or of a client:
// these are unbounded.
var apiLabels = []string{"group", "version", "resource"}

// latencyBuckets are in seconds, for latencies of tenths of a second.
var latencyBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

func and(labels ...string) []string {
	return append(apiLabels[:len(apiLabels):len(apiLabels)], labels...)
}

var (
	connectionsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "connections_total",
		Help:           "Number of watches that were opened.",
		StabilityLevel: metrics.ALPHA,
	}, apiLabels)
	connectionsOpen = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "connections_open",
		Help:           "Number of open watches.",
		StabilityLevel: metrics.ALPHA,
	}, apiLabels)
	connectionsDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "duration_seconds",
		Help:           "Duration of watches in seconds, observed when they end.",
		Buckets:        []float64{1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 2700, 3600, 7200, 14400},
		StabilityLevel: metrics.ALPHA,
	}, apiLabels)
	errorsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "errors_total",
		Help: "Number of watches that were rejected or broke, by type. Rejected: the reason of the response's HTTP code, such as TooManyRequests. " +
			"Broken: Stalled, the client read nothing for too long; WriteFailed, the connection broke while an event was written. " +
			"EncodeFailed counts events that could not be encoded and were skipped.",
		StabilityLevel: metrics.ALPHA,
	}, and("type"))
	eventsSent = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "events_sent_total",
		Help: "Number of events sent to watches, by type: initial, a data point that existed when the watch was opened; live, one that was stored later; " +
			"bookmark; error, which ends the watch.",
		StabilityLevel: metrics.ALPHA,
	}, and("type"))

	requestsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Name: "requests_total",
		Help: "Number of requests by verb (watch, list or get) and HTTP code, counted when the response starts: " +
			"apiserver_request_total counts a watch only when it has ended.",
		StabilityLevel: metrics.ALPHA,
	}, and("verb", "code"))
	rejectedTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "rejected_total",
		Help: "Number of watches of all APIs that were rejected with 429, by the limit that was exceeded: " +
			"maxConnections, maxConnectionsPerUser, or openRate, the rate at which one user opens them.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"limit"})

	deliveryLatency = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "delivery_latency_seconds",
		Help: "Time in seconds from when a data point was stored until its event was written to a watch's connection. " +
			"Initial events are not included.",
		Buckets:        latencyBuckets,
		StabilityLevel: metrics.ALPHA,
	}, apiLabels)
	firstEvent = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "first_event_seconds",
		Help: "Time in seconds from when a watch was requested until the first data point was written to it. " +
			"Watches without initial events are not included: their first event waits for data, not for the server.",
		Buckets:        latencyBuckets,
		StabilityLevel: metrics.ALPHA,
	}, apiLabels)

	coalescedTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "coalesced_points_total",
		Help:           "Number of data points that a watch skipped because a newer one of the same object was stored before the client read it.",
		StabilityLevel: metrics.ALPHA,
	}, apiLabels)
	rescansTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "rescans_total",
		Help: "Number of times that a watch fell behind the log of its selection and scanned the store instead. " +
			"It still delivers the newest data point of each object.",
		StabilityLevel: metrics.ALPHA,
	}, apiLabels)
	pendingPoints = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "pending_points",
		Help:           "Number of data points that are not yet written to a watch, over all open watches, updated every few seconds.",
		StabilityLevel: metrics.ALPHA,
	}, apiLabels)
	memoryBytes = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: watchSubsystem, Name: "memory_bytes",
		Help: "Estimated memory of the open watches in bytes, updated every few seconds: the size of what this process keeps for each " +
			"(position, channel, selection, its share of the log) and a measured constant for the HTTP stream and its goroutine. " +
			"Divided by metrics_api_watch_connections_open it is the memory of a connection; process_resident_memory_bytes has the actual total.",
		StabilityLevel: metrics.ALPHA,
	}, apiLabels)
)

// RegisterMetrics registers the metrics, for example with legacyregistry.MustRegister. Without
// it nothing is counted.
func RegisterMetrics(register func(...metrics.Registerable)) {
	register(connectionsTotal, connectionsOpen, connectionsDuration, errorsTotal, eventsSent, requestsTotal, rejectedTotal,
		deliveryLatency, firstEvent, coalescedTotal, rescansTotal, pendingPoints, memoryBytes)
}
