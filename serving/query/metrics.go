// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/component-base/metrics"
)

const (
	metricsNamespace = "metrics_backend"
	metricsSubsystem = "query"
)

// How requests are served, as a metric label's values.
const (
	requestHit      = "hit"
	requestShared   = "shared"
	requestMiss     = "miss"
	requestRejected = "rejected"
)

// No label has an expression, a metric or a client as its value: none of these is bounded.
// Sources are those of spec.sources.
var (
	evaluationsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "evaluations_total",
		Help: "Number of evaluations that ended, by source and result: Success, the reason of the failure as in the status of the MetricsBackend, " +
			"or Canceled, of a source that was replaced meanwhile.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"source", "result"})
	evaluationDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "evaluation_duration_seconds",
		Help:           "Time in seconds from when a query was sent to its source until the source returned a result or failed.",
		Buckets:        []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
		StabilityLevel: metrics.ALPHA,
	}, []string{"source"})
	evaluationsInFlight = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "evaluations_in_flight",
		Help:           "Number of running evaluations, by source.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"source"})
	evaluationsQueued = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "evaluations_queued",
		Help:           "Number of evaluations that wait because of the limit of running evaluations, by source.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"source"})
	circuitBreakerOpen = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "circuit_breaker_open",
		Help:           "1 while the queries of a source fail fast, except for one probe at a time, because the source keeps failing; otherwise 0.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"source"})
	requestsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "requests_total",
		Help: "Number of requests for the result of a query, by result: hit, the result or failure of the interval was cached; shared, the evaluation was running; " +
			"miss, it was started; rejected, there was none, since the source is gone, its circuit breaker is open, or a limit is reached.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	resultAge = metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "result_age_seconds",
		Help:           "Time in seconds from the instant for which a query was evaluated until a request got the result.",
		Buckets:        []float64{0.1, 0.5, 1, 2.5, 5, 7.5, 10, 15, 20, 30, 60, 120, 300, 600, 3600},
		StabilityLevel: metrics.ALPHA,
	})
	cachedQueries = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "cached_queries",
		Help:           "Number of different queries that are cached.",
		StabilityLevel: metrics.ALPHA,
	})
	watchedQueries = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "watched_queries",
		Help:           "Number of different queries that are evaluated once per interval for watches.",
		StabilityLevel: metrics.ALPHA,
	})
	cachedBytes = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "cached_bytes",
		Help:           "Bytes of the expressions and results of all cached queries.",
		StabilityLevel: metrics.ALPHA,
	})
	tenantQueries = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "tenant_cached_queries",
		Help:           "Number of different queries that are cached, of the tenants with most cached bytes, at most ten: a namespace, or (cluster) for queries that no namespace asked for.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"tenant"})
	tenantBytes = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "tenant_cached_bytes",
		Help:           "Bytes of cached queries and their results, of the tenants with most of them, at most ten.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"tenant"})
)

// RegisterMetrics registers the metrics, for example with legacyregistry.MustRegister. Metrics
// that are not registered count nothing.
func RegisterMetrics(register func(...metrics.Registerable)) {
	register(evaluationsTotal, evaluationDuration, evaluationsInFlight, evaluationsQueued, circuitBreakerOpen,
		requestsTotal, resultAge, cachedQueries, watchedQueries, cachedBytes,
		tenantQueries, tenantBytes)
}

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
