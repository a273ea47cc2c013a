// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/metricset"
)

const metricPrefix = "metrics_backend_kubelet_"

// MetricSet has the metrics of this package. None has a label with a node's name, which would
// make thousands of series. Report names nodes.
var MetricSet = metricset.New(metricPrefix)

var (
	scrapeDuration = MetricSet.Histogram("scrape_duration_seconds",
		"Time in seconds from the beginning of a scrape of one kubelet until its points were stored, or until it failed.",
		[]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60})
	scrapesTotal = MetricSet.CounterVec("scrapes_total",
		"Number of scrapes of kubelets that ended, by result: Success, or the reason of the failure as in the status of the MetricsBackend.", "result")
	skippedTotal = MetricSet.CounterVec("skipped_samples_total",
		"Number of samples in kubelets' answers that were not used, by reason.", "reason")
	scrapesInFlight = MetricSet.Gauge("scrapes_in_flight", "Number of running scrapes.")
	scheduleDelay   = MetricSet.Histogram("schedule_delay_seconds",
		"Time in seconds by which a scrape began later than it was due: up to 0.25 since scrapes start together, more when scrape.maxConcurrent is too small.",
		[]float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30})
	sampleAge = MetricSet.Histogram("node_sample_age_seconds",
		"Age in seconds of a node's newest sample when a scrape read it, by the clocks of the node and of this process.",
		[]float64{0.25, 0.5, 1, 2.5, 5, 7.5, 10, 15, 20, 30, 60, 120})
	podsWithoutMetrics = MetricSet.Gauge("pods_without_metrics",
		"Number of pods that run by the newest answer of their kubelet, and have had no metrics for several minutes.")
	nodesByState = MetricSet.GaugeVec("nodes",
		"Number of selected nodes by the state of their newest scrape: healthy, stale if the samples were too old to be served, without_pod_metrics if at least half of the pods have none, failing, or pending before the first.", "state")
	nodesPhaseTracked = MetricSet.Gauge("nodes_phase_tracked",
		"Number of selected nodes whose kubelet's refresh of its samples is predicted, so that a scrape follows it closely.")
	storePoints = MetricSet.GaugeVec("store_points", "Number of data points that are held, by type: node or pod.", "type")
)

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
