// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/reports"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/prometheus/client_golang/prometheus"
)

// transition is a change that is worth an event. Reasons are CamelCase verbs in the past
// tense, actions what the operator did.
type transition struct {
	kind, reason, action, note string
	// apiService is the related object; may be empty. Events that differ in their note
	// alone are counted as one series.
	apiService string
}

// recordTransitions records the differences between the stored and the written status.
// What is in the stored status was recorded before, so a restart or retry repeats
// nothing.
func (r *Reconciler) recordTransitions(s *reconcileState) {
	for _, e := range transitions(&s.storedStatus, &s.backend.Status) {
		var related runtime.Object
		if e.apiService != "" {
			related = &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: e.apiService}}
		}
		r.Events.Eventf(s.backend, related, e.kind, e.reason, e.action, "%s", text.Truncate(e.note, maxNote))
	}
}

func transitions(before, after *v1alpha1.MetricsBackendStatus) []transition {
	events := versionTransitions(before, after)
	for _, c := range after.Conditions {
		old := meta.FindStatusCondition(before.Conditions, c.Type)
		if e := conditionTransition(old, &c); e != nil {
			events = append(events, *e)
		}
	}
	if old := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionStalled); old != nil &&
		meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionStalled) == nil {
		events = append(events, transition{
			kind: corev1.EventTypeNormal, reason: "Resumed", action: "Reconcile", note: "no longer stalled by " + old.Reason,
		})
	}
	return events
}

func versionTransitions(before, after *v1alpha1.MetricsBackendStatus) []transition {
	var events []transition
	add := func(name, reason, action, note string) {
		events = append(events, transition{
			kind: corev1.EventTypeNormal, reason: reason, action: action, note: note, apiService: name,
		})
	}
	for _, service := range after.APIServices {
		name, was := service.Name, storedVersion(before, service.Name).State
		switch {
		case isRegistered(service.State) && !isRegistered(was):
			add(name, "VersionRegistered", "Register", "registered APIService "+name)
		case service.State.IsRetiring() && !was.IsRetiring():
			add(name, "VersionRetiring", "Retire", "removing APIService "+name+": "+service.Message)
		}
	}
	for _, service := range before.APIServices {
		if service.State.IsRetiring() && !storedVersion(after, service.Name).State.IsRetiring() {
			add(service.Name, "VersionRetired", "Retire", service.Name+" is out of discovery")
		}
	}
	return events
}

func isRegistered(state v1alpha1.APIServiceState) bool {
	return !state.IsPending() && !state.IsRetiring()
}

// conditionTransition returns the event for a condition that changed its status, or its
// reason while not True; nil if there is none.
func conditionTransition(old, c *metav1.Condition) *transition {
	was := ptr.Deref(old, metav1.Condition{Status: metav1.ConditionUnknown})
	statusChanged := c.Status != was.Status
	changed := statusChanged || c.Reason != was.Reason
	normal := func(reason, action string) *transition {
		return &transition{kind: corev1.EventTypeNormal, reason: reason, action: action, note: c.Message}
	}
	warning := func(action string) *transition {
		return &transition{kind: corev1.EventTypeWarning, reason: c.Reason, action: action, note: c.Message}
	}
	switch c.Type {
	case v1alpha1.ConditionStalled:
		// ConsumersCompatible and RulesReady have events of their own.
		if changed && c.Reason != v1alpha1.ReasonConsumersActive && c.Reason != v1alpha1.ReasonRulesInvalid {
			return warning("Stall")
		}
	case v1alpha1.ConditionConsumersCompatible:
		switch {
		case changed && c.Reason == v1alpha1.ReasonConsumersActive:
			return warning("KeepVersion")
		case changed && c.Reason == v1alpha1.ReasonRemovalForced:
			return warning("Retire")
		}
	case v1alpha1.ConditionAvailable:
		switch {
		case statusChanged && c.Status == metav1.ConditionTrue:
			return normal("Available", "Verify")
		case was.Status == metav1.ConditionTrue && statusChanged && readyStatusFor(*c) == metav1.ConditionFalse:
			return warning("Verify")
		}
	case v1alpha1.ConditionCertificatesValid:
		if statusChanged && c.Status == metav1.ConditionTrue {
			return normal("CertificateValid", "IssueCertificate")
		}
		switch {
		case changed && c.Status == metav1.ConditionFalse && was.Reason != "" && c.Reason != v1alpha1.ReasonProgressing:
			return warning("CheckCertificate")
		case changed && c.Reason == v1alpha1.ReasonRotating:
			return normal("CertificateRotating", "RotateCertificate")
		case changed && was.Reason == v1alpha1.ReasonRotating && c.Reason == v1alpha1.ReasonSucceeded:
			return normal("CertificateRotated", "RotateCertificate")
		}
	case v1alpha1.ConditionSourcesHealthy:
		if changed && c.Status == metav1.ConditionFalse {
			return warning("CheckSources")
		}
	case v1alpha1.ConditionRulesReady:
		if changed && c.Status == metav1.ConditionFalse {
			return warning("CheckRules")
		}
	case v1alpha1.ConditionServingReady:
		if changed && (c.Reason == v1alpha1.ReasonRolloutFailed || c.Reason == v1alpha1.ReasonProbeFailed || c.Reason == v1alpha1.ReasonVersionNotServed) {
			return warning("RollOut")
		}
	}
	return nil
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
