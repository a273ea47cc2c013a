// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/reports"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// recordTransitions records the differences between the stored and the written status.
// What is in the stored status was recorded before, so a restart or retry repeats
// nothing. Reasons are CamelCase verbs in the past tense, actions what the operator did.
func (r *Reconciler) recordTransitions(s *reconcileState) {
	r.recordVersions(s, &s.storedStatus, &s.backend.Status)
	for _, c := range s.backend.Status.Conditions {
		known := meta.FindStatusCondition(s.storedStatus.Conditions, c.Type)
		was := ptr.Deref(known, metav1.Condition{Status: metav1.ConditionUnknown})
		if kind, reason, action := conditionEvent(was, c); reason != "" {
			r.Events.Eventf(s.backend, nil, kind, reason, action, "%s", text.Truncate(c.Message, maxNote))
		}
	}
	old := meta.FindStatusCondition(s.storedStatus.Conditions, v1alpha1.ConditionStalled)
	if old != nil && s.condition(v1alpha1.ConditionStalled).Type == "" {
		r.Events.Eventf(s.backend, nil, corev1.EventTypeNormal, "Resumed", "Reconcile", "no longer stalled by %s", old.Reason)
	}
}

// recordVersions records the changes of versions. The related object tells them apart: events that
// differ in their note alone are counted as one series.
func (r *Reconciler) recordVersions(s *reconcileState, before, after *v1alpha1.MetricsBackendStatus) {
	record := func(name, reason, action, note string) {
		related := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name}}
		r.Events.Eventf(s.backend, related, corev1.EventTypeNormal, reason, action, "%s", text.Truncate(note, maxNote))
	}
	for _, service := range after.APIServices {
		name, was := service.Name, storedVersion(before, service.Name).State
		switch {
		case isRegistered(service.State) && !isRegistered(was):
			record(name, "VersionRegistered", "Register", "registered APIService "+name)
		case service.State.IsRetiring() && !was.IsRetiring():
			record(name, "VersionRetiring", "Retire", "removing APIService "+name+": "+service.Message)
		}
	}
	for _, service := range before.APIServices {
		if service.State.IsRetiring() && !storedVersion(after, service.Name).State.IsRetiring() {
			record(service.Name, "VersionRetired", "Retire", service.Name+" is out of discovery")
		}
	}
}

func isRegistered(state v1alpha1.APIServiceState) bool {
	return !state.IsPending() && !state.IsRetiring()
}

// conditionEvent returns the event for a condition that changed its status, or its
// reason while not True; empty if there is none.
func conditionEvent(was, c metav1.Condition) (kind, reason, action string) {
	statusChanged := c.Status != was.Status
	becameTrue := statusChanged && c.Status == metav1.ConditionTrue
	is := func(condition string, reasons ...string) bool {
		changed := statusChanged || c.Reason != was.Reason
		return changed && c.Type == condition && (len(reasons) == 0 || slices.Contains(reasons, c.Reason))
	}
	switch {
	case is(v1alpha1.ConditionStalled, v1alpha1.ReasonConsumersActive, v1alpha1.ReasonRulesInvalid):
		// ConsumersCompatible and RulesReady have events of their own.
		return "", "", ""
	case is(v1alpha1.ConditionStalled):
		action = "Stall"
	case is(v1alpha1.ConditionConsumersCompatible, v1alpha1.ReasonConsumersActive):
		action = "KeepVersion"
	case is(v1alpha1.ConditionConsumersCompatible, v1alpha1.ReasonRemovalForced):
		action = "Retire"
	case is(v1alpha1.ConditionAvailable) && becameTrue:
		return corev1.EventTypeNormal, "Available", "Verify"
	case is(v1alpha1.ConditionAvailable) && statusChanged && was.Status == metav1.ConditionTrue &&
		readyStatusFor(c) == metav1.ConditionFalse:
		action = "Verify"
	case is(v1alpha1.ConditionCertificatesValid) && becameTrue:
		return corev1.EventTypeNormal, "CertificateValid", "IssueCertificate"
	case is(v1alpha1.ConditionCertificatesValid) && c.Status == metav1.ConditionFalse && was.Reason != "" &&
		c.Reason != v1alpha1.ReasonProgressing:
		action = "CheckCertificate"
	case is(v1alpha1.ConditionCertificatesValid, v1alpha1.ReasonRotating):
		return corev1.EventTypeNormal, "CertificateRotating", "RotateCertificate"
	case is(v1alpha1.ConditionCertificatesValid, v1alpha1.ReasonSucceeded) && was.Reason == v1alpha1.ReasonRotating:
		return corev1.EventTypeNormal, "CertificateRotated", "RotateCertificate"
	case is(v1alpha1.ConditionSourcesHealthy) && c.Status == metav1.ConditionFalse:
		action = "CheckSources"
	case is(v1alpha1.ConditionRulesReady) && c.Status == metav1.ConditionFalse:
		action = "CheckRules"
	case is(v1alpha1.ConditionServingReady, v1alpha1.ReasonRolloutFailed, v1alpha1.ReasonProbeFailed, v1alpha1.ReasonVersionNotServed):
		action = "RollOut"
	default:
		return "", "", ""
	}
	return corev1.EventTypeWarning, c.Reason, action
}

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
	for _, c := range s.storedStatus.Conditions {
		if s.condition(c.Type).Type == "" {
			conditionGauge.DeletePartialMatch(prometheus.Labels{"backend": name, "type": c.Type})
		}
	}
	for _, c := range s.backend.Status.Conditions {
		for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
			value := 0.0
			if status == c.Status {
				value = 1
			}
			conditionGauge.WithLabelValues(name, c.Type, string(status)).Set(value)
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
	unknown, _ := s.consumersUnknown()
	for _, gv := range manifests.KnownVersions() {
		service := apiServiceName(gv)
		_, shown := s.apiServices[service]
		if !shown || unknown != "" {
			consumersGauge.DeleteLabelValues(name, service)
			continue
		}
		consumersGauge.WithLabelValues(name, service).Set(float64(len(reports.ActiveConsumers(s.backend.Status.Consumers, gv, s.now))))
	}
}

func forgetMetrics(backend string) {
	conditionGauge.DeletePartialMatch(prometheus.Labels{"backend": backend})
	certificateGauge.DeletePartialMatch(prometheus.Labels{"backend": backend})
	consumersGauge.DeletePartialMatch(prometheus.Labels{"backend": backend})
}
