// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package declaredmetric

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

const (
	// maxMessage bounds a condition's message, in bytes: it holds foreign text.
	maxMessage = 1024
	// maxValue bounds status.value, in bytes; a quantity is far shorter.
	maxValue = 64
)

// statusOf returns the status that a metric should have by what the pods say.
func statusOf(m *metric, v *view, now time.Time) *v1alpha1.DeclaredMetricStatus {
	status := m.status.DeepCopy()
	status.ObservedGeneration = m.object.GetGeneration()
	w := writer{status, now}
	if v.problem != nil {
		// Values and fallback stay as they were last seen. Ready is set once: on the way
		// through another status it would turn anew each time.
		w.ready(v.problem.ready(), v.problem.reason, v.problem.message)
		w.present(v1alpha1.ConditionStalled, v.problem.stalled, v.problem.reason, v.problem.message)
		w.present(v1alpha1.ConditionReconciling, false, "", "")
		return status
	}
	all := v.health(m)
	w.conditions(v, all)
	w.values(newest(all))
	return status
}

// writer sets fields of a status.
type writer struct {
	*v1alpha1.DeclaredMetricStatus
	now time.Time
}

// tally counts what the pods say.
type tally struct {
	late, pending, failing, fallback, collision int
	// firstLate is the name of a pod that has not taken the spec up.
	firstLate string
	// failure, standIn and clash are the first that say so.
	failure, standIn, clash *v1alpha1.DeclaredHealth
}

func count(v *view, all []*v1alpha1.DeclaredHealth) tally {
	var t tally
	for i, h := range all {
		switch {
		case h == nil:
			if t.late++; t.late == 1 {
				t.firstLate = v.pods[i].name
			}
			continue
		case !h.Ready && (h.Reason == "" && h.Message == "" || h.Reason == reasonPending):
			t.pending++
		case !h.Ready:
			if t.failing++; t.failure == nil || cmp.Less(h.Reason, t.failure.Reason) {
				t.failure = h
			}
		}
		if h.Fallback {
			if t.fallback++; t.standIn == nil {
				t.standIn = h
			}
		}
		if h.Reason == v1alpha1.ReasonCollision {
			if t.collision++; t.clash == nil {
				t.clash = h
			}
		}
	}
	return t
}

// conditions sets them all. Requests reach any pod, so one that fails is enough.
func (w writer) conditions(v *view, all []*v1alpha1.DeclaredHealth) {
	t := count(v, all)
	stalled, reconciling := false, false
	switch {
	case t.failing > 0:
		reason := reasonOf(t.failure.Reason)
		message := withPods(text.Printable(t.failure.Message, maxMessage), t.failing, len(all))
		w.ready(metav1.ConditionFalse, reason, message)
		stalled = needsPeople(reason)
	case t.late > 0:
		w.ready(metav1.ConditionUnknown, v1alpha1.ReasonProgressing, fmt.Sprintf("serving pod %s has not taken up the metric yet", t.firstLate))
		reconciling = true
	case t.pending > 0:
		// A pod that has just started has not asked; the others have.
		if t.pending < len(all) {
			w.ready(metav1.ConditionTrue, v1alpha1.ReasonSucceeded, succeeded)
			break
		}
		w.ready(metav1.ConditionUnknown, v1alpha1.ReasonProgressing, "it is being evaluated for the first time")
		reconciling = true
	default:
		w.ready(metav1.ConditionTrue, v1alpha1.ReasonSucceeded, succeeded)
	}
	ready := w.condition(v1alpha1.ConditionReady)
	w.present(v1alpha1.ConditionReconciling, reconciling, ready.Reason, ready.Message)
	w.present(v1alpha1.ConditionStalled, stalled, ready.Reason, ready.Message)
	w.present(v1alpha1.ConditionFallback, t.fallback > 0, v1alpha1.ReasonInUse,
		withPods("spec.fallback stands in for the values, see Ready", t.fallback, len(all)))
	if t.clash == nil {
		w.present(v1alpha1.ConditionCollision, false, "", "")
		return
	}
	w.present(v1alpha1.ConditionCollision, true, v1alpha1.ReasonCollision,
		withPods(text.Printable(t.clash.Message, maxMessage), t.collision, len(all)))
}

// reasonPending is that of a metric which a pod has not evaluated yet.
const reasonPending = "Pending"

const succeeded = "the newest evaluation gave values"

// needsPeople tells of a failure that ends only when someone changes something:
// asking again will not help.
func needsPeople(reason string) bool {
	switch reason {
	case v1alpha1.ReasonCollision, "UnknownSource", "UnknownResource", "Rejected":
		return true
	}
	return strings.HasPrefix(reason, "Invalid")
}

// values sets the newest ones. They stay while there are none: a value with its
// time says more than nothing, and Ready says that it is not of today.
func (w writer) values(h *v1alpha1.DeclaredHealth) {
	if h == nil {
		return
	}
	value := text.Printable(h.Value, maxValue)
	if value == "" {
		value = fmt.Sprintf("%d values", h.Values)
	}
	values := int32(min(max(h.Values, 0), 1<<30)) //nolint:gosec // bounded
	if value == w.Value && values == w.Values {
		// The time alone is no news, or a constant would be written for ever.
		return
	}
	w.Value, w.Values, w.Time = value, values, nil
	if !h.Time.IsZero() {
		at := h.Time.Rfc3339Copy()
		w.Time = &at
	}
}

func (w writer) ready(status metav1.ConditionStatus, reason, message string) {
	w.set(v1alpha1.ConditionReady, status, reason, message)
}

// present sets a condition that is there only while it is True.
func (w writer) present(kind string, is bool, reason, message string) {
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

func (w writer) condition(kind string) metav1.Condition {
	if c := meta.FindStatusCondition(w.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// withPods adds how many pods say so, if not all do.
func withPods(message string, say, all int) string {
	if say >= all {
		return message
	}
	return fmt.Sprintf("%s (as %d of %d serving pods see it)", strings.TrimRight(message, ". "), say, all)
}

// conditionReason is what kube-apiserver takes for a condition's reason.
var conditionReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]{0,98}[A-Za-z0-9_])?$`)

func reasonOf(reason string) string {
	if !conditionReason.MatchString(reason) {
		return v1alpha1.ReasonFailing
	}
	return reason
}

// urgency is how much of a status changed.
type urgency int

const (
	nothing urgency = iota
	// wording is a message, or the values.
	wording
	// turning is a condition that comes, goes, turns or gets another reason, or a new
	// generation.
	turning
)

func compare(before, after *v1alpha1.DeclaredMetricStatus) urgency {
	if equality.Semantic.DeepEqual(before, after) {
		return nothing
	}
	if before.ObservedGeneration != after.ObservedGeneration || len(before.Conditions) != len(after.Conditions) {
		return turning
	}
	for _, now := range after.Conditions {
		was := meta.FindStatusCondition(before.Conditions, now.Type)
		if was == nil || was.Status != now.Status || was.Reason != now.Reason || was.ObservedGeneration != now.ObservedGeneration {
			return turning
		}
	}
	return wording
}
