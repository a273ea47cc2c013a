// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package declaredmetric

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

var (
	stateGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "metrics_backend_declared_metrics",
		Help: "Number of CustomMetrics and ExternalMetrics by the state in their status: ready, fallback, failing or unknown.",
	}, []string{"kind", "state"})
	pollCounter = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "metrics_backend_declared_polls_total",
		Help: "Requests to serving pods for the state of declared metrics, by result (success or error).",
	}, []string{"result"})
	writeCounter = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "metrics_backend_declared_status_writes_total",
		Help: "Writes of the status of CustomMetrics and ExternalMetrics, by result (success or error).",
	}, []string{"result"})
)

func init() {
	ctrlmetrics.Registry.MustRegister(stateGauge, pollCounter, writeCounter)
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "success"
}

func countPoll(err error)  { pollCounter.WithLabelValues(result(err)).Inc() }
func countWrite(err error) { writeCounter.WithLabelValues(result(err)).Inc() }

// countStates sets the number of metrics by the state in their status.
func countStates(metrics []*metric) {
	type key struct{ kind, state string }
	counts := map[key]int{}
	for _, m := range metrics {
		counts[key{m.kind, stateOf(m.status)}]++
	}
	for _, kind := range []string{kindCustom, kindExternal} {
		for _, state := range []string{"ready", "fallback", "failing", "unknown"} {
			stateGauge.WithLabelValues(kind, state).Set(float64(counts[key{kind, state}]))
		}
	}
}

func stateOf(status *v1alpha1.DeclaredMetricStatus) string {
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil || ready.Status == metav1.ConditionUnknown:
		return "unknown"
	case ready.Status == metav1.ConditionTrue:
		return "ready"
	case meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionFallback):
		return "fallback"
	}
	return "failing"
}
