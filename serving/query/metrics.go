// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/serving/metricset"
)

// How requests are served, as a metric label's values.
const (
	requestHit      = "hit"
	requestShared   = "shared"
	requestMiss     = "miss"
	requestRejected = "rejected"
)

// MetricSet has the metrics of this package. No label has an expression, a metric or a client as
// its value: none of these is bounded. Sources are those of spec.sources.
var MetricSet = metricset.New("metrics_backend_query_")

var (
	evaluationsTotal = MetricSet.CounterVec("evaluations_total",
		"Number of evaluations that ended, by source and result: Success, the reason of the failure as in the status of the MetricsBackend, "+
			"or Canceled, of a source that was replaced meanwhile, or for which no client waits.", "source", "result")
	evaluationDuration = MetricSet.HistogramVec("evaluation_duration_seconds",
		"Time in seconds from when a query was sent to its source until the source returned a result or failed.",
		[]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}, "source")
	evaluationsInFlight = MetricSet.GaugeVec("evaluations_in_flight", "Number of running evaluations, by source.", "source")
	evaluationsQueued   = MetricSet.GaugeVec("evaluations_queued",
		"Number of evaluations that wait because of the limit of running evaluations, by source.", "source")
	circuitBreakerOpen = MetricSet.GaugeVec("circuit_breaker_open",
		"1 while the queries of a source fail fast, except for one probe at a time, because the source keeps failing; otherwise 0.", "source")
	requestsTotal = MetricSet.CounterVec("requests_total",
		"Number of requests for the result of a query, by result: hit, the result or failure of the interval was cached; shared, the evaluation was running; "+
			"miss, it was started; rejected, there was none, since the source is gone, its circuit breaker is open, or a limit is reached.", "result")
	resultAge = MetricSet.Histogram("result_age_seconds",
		"Time in seconds from the instant for which a query was evaluated until a request got the result.",
		[]float64{0.1, 0.5, 1, 2.5, 5, 7.5, 10, 15, 20, 30, 60, 120, 300, 600, 3600})
	cachedQueries  = MetricSet.Gauge("cached_queries", "Number of different queries that are cached.")
	watchedQueries = MetricSet.Gauge("watched_queries",
		"Number of different queries that are evaluated once per interval for watches.")
	cachedBytes   = MetricSet.Gauge("cached_bytes", "Bytes of the expressions and results of all cached queries.")
	tenantQueries = MetricSet.GaugeVec("tenant_cached_queries",
		"Number of different queries that are cached, of the tenants with most cached bytes, at most ten: a namespace, or (cluster) for queries that no namespace asked for.", "tenant")
	tenantBytes = MetricSet.GaugeVec("tenant_cached_bytes",
		"Bytes of cached queries and their results, of the tenants with most of them, at most ten.", "tenant")
)

// maxReportedTenants limits the series of tenantQueries and tenantBytes.
const maxReportedTenants = 10

// reportTenants sets the gauges of the tenants with most cached bytes, and deletes those of
// the previously reported ones that are no longer among them. It returns the tenants' labels.
func reportTenants(tenants map[string]*tenantUsage, previous []string) []string {
	all := slices.SortedFunc(maps.Values(tenants), func(a, b *tenantUsage) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(b.queries, a.queries), cmp.Compare(a.tenant, b.tenant))
	})
	var reported []string
	for _, t := range all[:min(len(all), maxReportedTenants)] {
		// No namespace can have this name.
		label := cmp.Or(t.tenant, "(cluster)")
		tenantQueries.WithLabelValues(label).Set(float64(t.queries))
		tenantBytes.WithLabelValues(label).Set(float64(t.bytes))
		reported = append(reported, label)
	}
	for _, label := range previous {
		if !slices.Contains(reported, label) {
			tenantQueries.DeleteLabelValues(label)
			tenantBytes.DeleteLabelValues(label)
		}
	}
	return reported
}

// observeAge observes the age of a result that a request gets; nil is ignored.
func observeAge(r *Result, now time.Time) *Result {
	if r != nil {
		resultAge.Observe(max(now.Sub(r.Time), 0).Seconds())
	}
	return r
}

func countEvaluation(ev *evaluation, failure *Failure, took time.Duration) {
	result := "Success"
	switch {
	case ev.canceled:
		result = "Canceled"
	case failure != nil:
		result = string(failure.Reason)
	}
	evaluationsTotal.WithLabelValues(ev.queue.name, result).Inc()
	evaluationDuration.WithLabelValues(ev.queue.name).Observe(took.Seconds())
}

// deleteGauges deletes the gauges of a source that is no longer used.
func deleteGauges(source string) {
	evaluationsInFlight.DeleteLabelValues(source)
	evaluationsQueued.DeleteLabelValues(source)
	circuitBreakerOpen.DeleteLabelValues(source)
}
