// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"k8s.io/component-base/metrics"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	metricsNamespace = "metrics_backend"
	metricsSubsystem = "kubelet"
)

// No metric has a label with a node's name, which would make thousands of series.
// Report names nodes.
var (
	scrapeDuration = metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "scrape_duration_seconds",
		Help:           "Time in seconds from the beginning of a scrape of one kubelet until its points were stored, or until it failed.",
		Buckets:        []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
		StabilityLevel: metrics.ALPHA,
	})
	scrapesTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "scrapes_total",
		Help:           "Number of scrapes of kubelets that ended, by result: Success, or the reason of the failure as in the status of the MetricsBackend.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	skippedTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "skipped_samples_total",
		Help:           "Number of samples in kubelets' answers that were not used, by reason.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})
	scrapesInFlight = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "scrapes_in_flight",
		Help:           "Number of running scrapes.",
		StabilityLevel: metrics.ALPHA,
	})
	scheduleDelay = metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "schedule_delay_seconds",
		Help:           "Time in seconds by which a scrape began later than it was due: up to 0.25 since scrapes start together, more when scrape.maxConcurrent is too small.",
		Buckets:        []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
		StabilityLevel: metrics.ALPHA,
	})
	sampleAge = metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "node_sample_age_seconds",
		Help:           "Age in seconds of a node's newest sample when a scrape read it, by the clocks of the node and of this process.",
		Buckets:        []float64{0.25, 0.5, 1, 2.5, 5, 7.5, 10, 15, 20, 30, 60, 120},
		StabilityLevel: metrics.ALPHA,
	})
	podsWithoutMetrics = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "pods_without_metrics",
		Help:           "Number of pods that run by the newest answer of their kubelet, and have had no metrics for several minutes.",
		StabilityLevel: metrics.ALPHA,
	})
	nodesByState = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "nodes",
		Help:           "Number of selected nodes by the state of their newest scrape: healthy, stale if the samples were too old to be served, without_pod_metrics if at least half of the pods have none, failing, or pending before the first.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"state"})
	nodesPhaseTracked = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "nodes_phase_tracked",
		Help:           "Number of selected nodes whose kubelet's refresh of its samples is predicted, so that a scrape follows it closely.",
		StabilityLevel: metrics.ALPHA,
	})
	storePoints = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "store_points",
		Help:           "Number of data points that are held, by type: node or pod.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"type"})
)

// RegisterMetrics registers the source's metrics, for example with
// legacyregistry.MustRegister. Unregistered metrics are not counted.
func RegisterMetrics(register func(...metrics.Registerable)) {
	register(scrapeDuration, scrapesTotal, skippedTotal, scrapesInFlight, scheduleDelay,
		sampleAge, podsWithoutMetrics, nodesByState, nodesPhaseTracked, storePoints)
}

// count counts a result in the metrics.
func (o *scrapeResult) count() {
	scrapeDuration.Observe(o.end.Sub(o.start).Seconds())
	result := "Success"
	if o.failure != nil {
		result = string(o.failure.reason)
	}
	scrapesTotal.WithLabelValues(result).Inc()
	for reason, n := range o.stats.skipped {
		if n > 0 {
			skippedTotal.WithLabelValues(skipReason(reason).String()).Add(float64(n))
		}
	}
	if o.nodeSample {
		sampleAge.Observe(max(0, o.start.Sub(o.sample).Seconds()))
	}
}

// updateGauges sets the gauges of nodes.
func (s *Source) updateGauges() {
	report := s.Report()
	failing := map[v1alpha1.ScrapeReason]int{}
	for _, f := range report.Failures {
		failing[f.Reason] = f.Count
	}
	stale, noPods := failing[v1alpha1.ScrapeStaleSamples], failing[v1alpha1.ScrapePodsWithoutMetrics]
	podsWithoutMetrics.Set(float64(report.PodsWithoutMetrics))
	nodesByState.WithLabelValues("healthy").Set(float64(report.Healthy))
	nodesByState.WithLabelValues("stale").Set(float64(stale))
	nodesByState.WithLabelValues("without_pod_metrics").Set(float64(noPods))
	nodesByState.WithLabelValues("failing").Set(float64(report.Nodes - report.Healthy - report.Pending - stale - noPods))
	nodesByState.WithLabelValues("pending").Set(float64(report.Pending))
	s.mu.Lock()
	defer s.mu.Unlock()
	tracked := 0
	for _, t := range s.targets {
		if t.refreshes.Tracks(s.settings.Interval) {
			tracked++
		}
	}
	nodesPhaseTracked.Set(float64(tracked))
}
