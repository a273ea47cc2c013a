// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import "github.com/metricsbackend/metrics-backend-operator/serving/metricset"

// MetricSet has the metrics of this package. Its prefix is that of KEP-1013, which defines watch_connections_total,
// watch_duration_seconds, watch_errors_total and watch_events_sent_total for every implementation of the metrics APIs.
var MetricSet = metricset.New("metrics_api_")

// apiLabels identify an API. No label has a selector or the name of an object or of a client:
// these are unbounded.
var apiLabels = []string{"group", "version", "resource"}

// latencyBuckets are in seconds, for latencies of tenths of a second.
var latencyBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

func and(labels ...string) []string {
	return append(apiLabels[:len(apiLabels):len(apiLabels)], labels...)
}

var (
	connectionsTotal    = MetricSet.CounterVec("watch_connections_total", "Number of watches that were opened.", apiLabels...)
	connectionsOpen     = MetricSet.GaugeVec("watch_connections_open", "Number of open watches.", apiLabels...)
	connectionsDuration = MetricSet.HistogramVec("watch_duration_seconds",
		"Duration of watches in seconds, observed when they end.",
		[]float64{1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 2700, 3600, 7200, 14400}, apiLabels...)
	errorsTotal = MetricSet.CounterVec("watch_errors_total",
		"Number of watches that were rejected or broke, by type. Rejected: the reason of the response's HTTP code, such as TooManyRequests. "+
			"Broken: Stalled, the client read nothing for too long; WriteFailed, the connection broke while an event was written. "+
			"EncodeFailed counts events that could not be encoded and were skipped.", and("type")...)
	eventsSent = MetricSet.CounterVec("watch_events_sent_total",
		"Number of events sent to watches, by type: initial, a data point that existed when the watch was opened; live, one that was stored later; "+
			"bookmark; error, which ends the watch.", and("type")...)

	requestsTotal = MetricSet.CounterVec("requests_total",
		"Number of requests by verb (watch, list or get) and HTTP code, counted when the response starts: "+
			"apiserver_request_total counts a watch only when it has ended.", and("verb", "code")...)
	rejectedTotal = MetricSet.CounterVec("watch_rejected_total",
		"Number of watches of all APIs that were rejected with 429, by the limit that was exceeded: "+
			"maxWatches, maxWatchesPerUser, or openRate, the rate at which one user opens them.", "limit")

	deliveryLatency = MetricSet.HistogramVec("watch_delivery_latency_seconds",
		"Time in seconds from when a data point was stored until its event was written to a watch's connection. "+
			"Initial events are not included.",
		latencyBuckets, apiLabels...)
	firstEvent = MetricSet.HistogramVec("watch_first_event_seconds",
		"Time in seconds from when a watch was requested until the first data point was written to it. "+
			"Watches without initial events are not included: their first event waits for data, not for the server.",
		latencyBuckets, apiLabels...)

	coalescedTotal = MetricSet.CounterVec("watch_coalesced_points_total",
		"Number of data points that a watch skipped because a newer one of the same object was stored before the client read it.", apiLabels...)
	rescansTotal = MetricSet.CounterVec("watch_rescans_total",
		"Number of times that a watch fell behind the log of its selection and scanned the store instead. "+
			"It still delivers the newest data point of each object.", apiLabels...)
	pendingPoints = MetricSet.GaugeVec("watch_pending_points",
		"Number of data points that are not yet written to a watch, over all open watches, updated every few seconds.", apiLabels...)
	memoryBytes = MetricSet.GaugeVec("watch_memory_bytes",
		"Estimated memory of the open watches in bytes, updated every few seconds: the size of what this process keeps for each "+
			"(position, channel, selection, its share of the log) and a measured constant for the HTTP stream and its goroutine. "+
			"Divided by metrics_api_watch_connections_open it is the memory of a connection; process_resident_memory_bytes has the actual total.", apiLabels...)
)
