// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package declaredmetric

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

const (
	// maxMessage bounds a condition's message, in bytes.
	maxMessage = 1024
	// maxValue bounds status.value, in bytes; a quantity is far shorter.
	maxValue = 64
	// maxReason bounds a reason, in bytes; kube-apiserver accepts shorter ones.
	maxReason = 128
)

// statusOf returns the status of a metric according to the reports.
func statusOf(m *metric, r *reports, now time.Time) *v1alpha1.DeclaredMetricStatus {
	status := m.status.DeepCopy()
	status.ObservedGeneration = m.Generation
	w := writer{status, now}
	if r.problem != nil {
		// Values and fallback stay. Ready is set once: setting it twice would update its
		// lastTransitionTime each time.
		ready := metav1.ConditionUnknown
		if r.problem.stalled { // it is known that no backend serves the metric
			ready = metav1.ConditionFalse
		}
		w.ready(ready, r.problem.reason, r.problem.message)
		w.setIfTrue(v1alpha1.ConditionStalled, r.problem.stalled, r.problem.reason, r.problem.message)
		w.setIfTrue(v1alpha1.ConditionReconciling, false, "", "")
		return status
	}
	all := r.health(m)
	w.conditions(r, all)
	w.values(newest(all))
	return status
}

// writer sets fields of a status.
type writer struct {
	*v1alpha1.DeclaredMetricStatus
	now time.Time
}

// counts are the numbers of pods by the state of the metric.
type counts struct {
	outdated, pending, failing, fallback, collisions int
	// firstOutdated is the name of a pod that has not applied the spec.
	firstOutdated string
	// failure and collision are an example each.
	failure, collision *v1alpha1.DeclaredHealth
}

func countPods(r *reports, all []*v1alpha1.DeclaredHealth) counts {
	var n counts
	for i, h := range all {
		switch {
		case h == nil:
			if n.outdated++; n.outdated == 1 {
				n.firstOutdated = r.pods[i].name
			}
			continue
		case !h.Ready && (h.Reason == "" && h.Message == "" || h.Reason == reasonPending):
			n.pending++
		case !h.Ready:
			if n.failing++; n.failure == nil || cmp.Less(h.Reason, n.failure.Reason) {
				n.failure = h
			}
		}
		if h.Fallback {
			n.fallback++
		}
		if h.Reason == v1alpha1.ReasonCollision {
			if n.collisions++; n.collision == nil {
				n.collision = h
			}
		}
	}
	return n
}

// conditions sets all conditions. Requests reach any pod, so that one failing pod is enough
// for Ready=False.
func (w writer) conditions(r *reports, all []*v1alpha1.DeclaredHealth) {
	n := countPods(r, all)
	stalled, reconciling := false, false
	switch {
	case n.failing > 0:
		reason := n.failure.Reason
		if !conditionReason.MatchString(reason) {
			reason = v1alpha1.ReasonFailing
		}
		message := servingclient.WithPods(text.Printable(n.failure.Message, maxMessage), n.failing, len(all))
		w.ready(metav1.ConditionFalse, reason, message)
		stalled = isPermanent(reason)
	case n.outdated > 0:
		w.ready(metav1.ConditionUnknown, v1alpha1.ReasonProgressing, fmt.Sprintf("serving pod %s has not taken up the metric yet", n.firstOutdated))
		reconciling = true
	case n.pending > 0 && n.pending == len(all):
		w.ready(metav1.ConditionUnknown, v1alpha1.ReasonProgressing, "it is being evaluated for the first time")
		reconciling = true
	default: // only pods that have just started have not evaluated the query
		w.ready(metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "the newest evaluation gave values")
	}
	ready := ptr.Deref(meta.FindStatusCondition(w.Conditions, v1alpha1.ConditionReady), metav1.Condition{})
	w.setIfTrue(v1alpha1.ConditionReconciling, reconciling, ready.Reason, ready.Message)
	w.setIfTrue(v1alpha1.ConditionStalled, stalled, ready.Reason, ready.Message)
	w.setIfTrue(v1alpha1.ConditionFallback, n.fallback > 0, v1alpha1.ReasonInUse,
		servingclient.WithPods("spec.fallback stands in for the values, see Ready", n.fallback, len(all)))
	collision := ptr.Deref(n.collision, v1alpha1.DeclaredHealth{}).Message
	w.setIfTrue(v1alpha1.ConditionCollision, n.collisions > 0, v1alpha1.ReasonCollision,
		servingclient.WithPods(text.Printable(collision, maxMessage), n.collisions, len(all)))
}

// reasonPending is the reason of a metric that a pod has not evaluated yet.
const reasonPending = "Pending"

// isPermanent reports whether a failure needs a change of the metric or its source: retries
// do not help.
func isPermanent(reason string) bool {
	permanent := []string{v1alpha1.ReasonCollision, "UnknownSource", "UnknownResource", "Rejected"}
	return slices.Contains(permanent, reason) || strings.HasPrefix(reason, "Invalid")
}

// values sets the newest values. Without any the former ones stay, with their time.
func (w writer) values(h *v1alpha1.DeclaredHealth) {
	if h == nil {
		return
	}
	value := text.Printable(h.Value, maxValue)
	if value == "" {
		value = fmt.Sprintf("%d values", h.Values)
	}
	values := servingclient.Clamp(h.Values)
	if value == w.Value && values == w.Values {
		// A new time alone is not written, or a constant value would be written forever.
		return
	}
	w.Value, w.Values, w.Time = value, values, nil
	if !h.Time.IsZero() {
		w.Time = new(h.Time.Rfc3339Copy())
	}
}

func (w writer) ready(status metav1.ConditionStatus, reason, message string) {
	w.set(v1alpha1.ConditionReady, status, reason, message)
}

// setIfTrue sets a condition to True, or removes it.
func (w writer) setIfTrue(kind string, is bool, reason, message string) {
	if !is {
		meta.RemoveStatusCondition(&w.Conditions, kind)
		return
	}
	w.set(kind, metav1.ConditionTrue, reason, message)
}

func (w writer) set(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&w.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: w.ObservedGeneration, LastTransitionTime: metav1.NewTime(w.now).Rfc3339Copy(),
	})
}

// conditionReason is kube-apiserver's validation of a condition's reason.
var conditionReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]{0,98}[A-Za-z0-9_])?$`)

// urgency classifies the change of a status.
type urgency int

const (
	unchanged urgency = iota
	// detail is a change of messages or values.
	detail
	// transition is a change of the type, status or reason of conditions, or of the
	// generation.
	transition
)

func compare(before, after *v1alpha1.DeclaredMetricStatus) urgency {
	if equality.Semantic.DeepEqual(before, after) {
		return unchanged
	}
	if before.ObservedGeneration != after.ObservedGeneration || len(before.Conditions) != len(after.Conditions) {
		return transition
	}
	for _, now := range after.Conditions {
		was := meta.FindStatusCondition(before.Conditions, now.Type)
		if was == nil || was.Status != now.Status || was.Reason != now.Reason || was.ObservedGeneration != now.ObservedGeneration {
			return transition
		}
	}
	return detail
}
