// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/reports"
)

var (
	conditionGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "metrics_backend_condition",
		Help: "Whether a condition of a MetricsBackend has the status (1) or not (0).",
	}, []string{"backend", "type", "status"})
	certificateGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "metrics_backend_certificate_expiration_timestamp_seconds",
		Help: "When the serving certificate expires, in seconds since 1970.",
	}, []string{"backend"})
	consumersGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "metrics_backend_consumers",
		Help: "Number of clients (user agent and user) that asked for a version today or yesterday, at most 20; absent while unknown.",
	}, []string{"backend", "version"})
)

func init() {
	ctrlmetrics.Registry.MustRegister(conditionGauge, certificateGauge, consumersGauge)
}

// recordMetrics exports the conditions as written. A condition that is absent, such as
// Stalled, has no series.
func (r *Reconciler) recordMetrics(s *reconcileState) {
	name := s.backend.Name
	present := map[string]metav1.ConditionStatus{}
	for _, c := range s.backend.Status.Conditions {
		present[c.Type] = c.Status
	}
	for _, c := range s.storedStatus.Conditions {
		if _, ok := present[c.Type]; !ok {
			conditionGauge.DeletePartialMatch(prometheus.Labels{"backend": name, "type": c.Type})
		}
	}
	for kind, is := range present {
		for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
			value := 0.0
			if status == is {
				value = 1
			}
			conditionGauge.WithLabelValues(name, kind, string(status)).Set(value)
		}
	}
	switch {
	case !s.certificate.NotAfter.IsZero():
		certificateGauge.WithLabelValues(name).Set(float64(s.certificate.NotAfter.Unix()))
	case !s.deploys():
		// None of our pods serve any more. If the certificate only could not be read just
		// now, the series stays.
		certificateGauge.DeleteLabelValues(name)
	}
	s.recordConsumers()
}

// recordConsumers exports the number of clients of each desired or registered version.
func (s *reconcileState) recordConsumers() {
	unknown, _ := s.consumersUnknown()
	for _, gv := range manifests.KnownVersions() {
		name := apiServiceName(gv)
		_, shown := s.apiServices[name]
		if !shown || unknown != "" {
			consumersGauge.DeleteLabelValues(s.backend.Name, name)
			continue
		}
		consumersGauge.WithLabelValues(s.backend.Name, name).Set(float64(len(reports.ActiveConsumers(s.backend.Status.Consumers, gv, s.now))))
	}
}

func forgetMetrics(backend string) {
	conditionGauge.DeletePartialMatch(prometheus.Labels{"backend": backend})
	certificateGauge.DeletePartialMatch(prometheus.Labels{"backend": backend})
	consumersGauge.DeletePartialMatch(prometheus.Labels{"backend": backend})
}
