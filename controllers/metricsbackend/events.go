// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// transition is a change worth an event. The reasons are CamelCase verbs in the
// past, the actions what the operator did.
type transition struct {
	kind, reason, action, note string
}

// recordTransitions tells what changed between the status that was read and the
// one that was written. What is in the status was told once; so a restart or a
// retry tells nothing twice.
func (r *Reconciler) recordTransitions(s *scope) {
	for _, e := range transitions(&s.before, &s.backend.Status) {
		r.Events.Eventf(s.backend, nil, e.kind, e.reason, e.action, "%s", e.note)
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
		events = append(events, transition{corev1.EventTypeNormal, "Resumed", "Reconcile", "no longer stalled: " + old.Reason})
	}
	return events
}

func versionTransitions(before, after *v1alpha1.MetricsBackendStatus) []transition {
	states := func(status *v1alpha1.MetricsBackendStatus) map[string]v1alpha1.APIServiceStatus {
		m := map[string]v1alpha1.APIServiceStatus{}
		for _, service := range status.APIServices {
			m[service.Name] = service
		}
		return m
	}
	old, now := states(before), states(after)
	var events []transition
	for _, service := range after.APIServices {
		was := old[service.Name].State
		switch service.State {
		case v1alpha1.APIServiceRegistered, v1alpha1.APIServiceAvailable:
			if was != v1alpha1.APIServiceRegistered && was != v1alpha1.APIServiceAvailable {
				events = append(events, transition{corev1.EventTypeNormal, "VersionRegistered", "Register", "registered APIService " + service.Name})
			}
		case v1alpha1.APIServiceRetiring:
			if was != v1alpha1.APIServiceRetiring {
				events = append(events, transition{corev1.EventTypeNormal, "VersionRetiring", "Retire",
					fmt.Sprintf("removing APIService %s: %s", service.Name, service.Message)})
			}
		}
	}
	for _, service := range before.APIServices {
		state := now[service.Name].State
		if service.State == v1alpha1.APIServiceRetiring && state != v1alpha1.APIServiceRetiring {
			events = append(events, transition{corev1.EventTypeNormal, "VersionRetired", "Retire", service.Name + " is out of discovery"})
		}
	}
	return events
}

// conditionTransition tells of a condition that changed its status, or of a
// Stalled with another reason.
func conditionTransition(old, c *metav1.Condition) *transition {
	was := metav1.ConditionUnknown
	if old != nil {
		was = old.Status
	}
	switch {
	case c.Type == v1alpha1.ConditionStalled && (old == nil || old.Reason != c.Reason):
		return &transition{corev1.EventTypeWarning, "Stalled", "Reconcile", c.Reason + ": " + c.Message}
	case c.Type == v1alpha1.ConditionAvailable && c.Status != was && c.Status == metav1.ConditionTrue:
		return &transition{corev1.EventTypeNormal, "Available", "Verify", c.Message}
	case c.Type == v1alpha1.ConditionAvailable && was == metav1.ConditionTrue:
		if c.Status == metav1.ConditionTrue {
			return nil
		}
		return &transition{corev1.EventTypeWarning, "Unavailable", "Verify", c.Reason + ": " + c.Message}
	case c.Type == v1alpha1.ConditionCertificatesValid && c.Status != was && c.Status == metav1.ConditionTrue:
		return &transition{corev1.EventTypeNormal, "CertificateValid", "IssueCertificate", c.Message}
	case c.Type == v1alpha1.ConditionSourcesHealthy && c.Status != was && c.Status == metav1.ConditionFalse:
		return &transition{corev1.EventTypeWarning, c.Reason, "CheckSources", c.Message}
	case c.Type == v1alpha1.ConditionServingReady && c.Reason == v1alpha1.ReasonRolloutFailed && (old == nil || old.Reason != c.Reason):
		return &transition{corev1.EventTypeWarning, c.Reason, "RollOut", c.Message}
	}
	return nil
}
