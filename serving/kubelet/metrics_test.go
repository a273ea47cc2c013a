// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func TestMetrics(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	MetricSet.Register(registry.MustRegister)
	scrapesTotal.Reset()
	skippedTotal.Reset()
	before := sumsOf(t, registry)

	good := scrapeResult{start: epoch, end: epoch.Add(20 * time.Millisecond), sample: epoch.Add(-3 * time.Second), nodeSample: true}
	good.stats.skip(skipNegative, nil)
	good.stats.skip(skipNegative, nil)
	good.count()
	ahead := scrapeResult{start: epoch, end: epoch, sample: epoch.Add(time.Second), nodeSample: true}
	ahead.count()
	bad := scrapeResult{start: epoch, end: epoch.Add(10 * time.Second), failure: failf(v1alpha1.ScrapeTimeout, "why")}
	bad.count()
	nodesWith(t, history{1}, history{v1alpha1.ScrapeTimeout}, history{v1alpha1.ScrapeStaleSamples}, history{v1alpha1.ScrapePodsWithoutMetrics}, history{}, history{}).upkeep()

	want := `
# HELP metrics_backend_kubelet_nodes [ALPHA] Number of selected nodes by the state of their newest scrape: healthy, stale if the samples were too old to be served, without_pod_metrics if at least half of the pods have none, failing, or pending before the first.
# TYPE metrics_backend_kubelet_nodes gauge
metrics_backend_kubelet_nodes{state="failing"} 1
metrics_backend_kubelet_nodes{state="healthy"} 1
metrics_backend_kubelet_nodes{state="pending"} 2
metrics_backend_kubelet_nodes{state="stale"} 1
metrics_backend_kubelet_nodes{state="without_pod_metrics"} 1
# HELP metrics_backend_kubelet_pods_without_metrics [ALPHA] Number of pods that run by the newest answer of their kubelet, and have had no metrics for several minutes.
# TYPE metrics_backend_kubelet_pods_without_metrics gauge
metrics_backend_kubelet_pods_without_metrics 7
# HELP metrics_backend_kubelet_scrapes_total [ALPHA] Number of scrapes of kubelets that ended, by result: Success, or the reason of the failure as in the status of the MetricsBackend.
# TYPE metrics_backend_kubelet_scrapes_total counter
metrics_backend_kubelet_scrapes_total{result="Success"} 2
metrics_backend_kubelet_scrapes_total{result="Timeout"} 1
# HELP metrics_backend_kubelet_skipped_samples_total [ALPHA] Number of samples in kubelets' answers that were not used, by reason.
# TYPE metrics_backend_kubelet_skipped_samples_total counter
metrics_backend_kubelet_skipped_samples_total{reason="Negative"} 2
# HELP metrics_backend_kubelet_store_points [ALPHA] Number of data points that are held, by type: node or pod.
# TYPE metrics_backend_kubelet_store_points gauge
metrics_backend_kubelet_store_points{type="node"} 0
metrics_backend_kubelet_store_points{type="pod"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"metrics_backend_kubelet_nodes", "metrics_backend_kubelet_pods_without_metrics", "metrics_backend_kubelet_scrapes_total",
		"metrics_backend_kubelet_skipped_samples_total", "metrics_backend_kubelet_store_points"); err != nil {
		t.Error(err)
	}
	sums := sumsOf(t, registry)
	if got := sums["metrics_backend_kubelet_scrape_duration_seconds"] - before["metrics_backend_kubelet_scrape_duration_seconds"]; got < 10.019 || got > 10.021 {
		t.Errorf("scrapes took %v s in all, want 10.02", got)
	}
	if got := sums["metrics_backend_kubelet_node_sample_age_seconds"] - before["metrics_backend_kubelet_node_sample_age_seconds"]; got < 2.999 || got > 3.001 {
		t.Errorf("samples were %v s old in all, want 3", got)
	}
}

// sumsOf returns the sums of the histograms, and checks that no metric has a label
// with a node's name.
func sumsOf(t *testing.T, registry metrics.KubeRegistry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "metrics_backend_kubelet_") || f.GetHelp() == "" {
			t.Errorf("%s: %q", f.GetName(), f.GetHelp())
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "node" {
					t.Errorf("%s has a label with a node's name", f.GetName())
				}
			}
			sums[f.GetName()] += m.GetHistogram().GetSampleSum()
		}
	}
	return sums
}
