// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/argocd"
)

var now = metav1.NewTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))

func ready() *v1alpha1.MetricsBackend {
	b := &v1alpha1.MetricsBackend{}
	b.Name, b.Generation, b.Status.ObservedGeneration = "cluster", 2, 2
	set(b, v1alpha1.ConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
	set(b, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
	return b
}

func working() *v1alpha1.MetricsBackend {
	b := ready()
	set(b, v1alpha1.ConditionReady, metav1.ConditionUnknown, v1alpha1.ReasonProgressing)
	set(b, v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonProgressing)
	return b
}

func set(b *v1alpha1.MetricsBackend, kind string, value metav1.ConditionStatus, reason string) {
	meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
		Type: kind, Status: value, Reason: reason, Message: "because", ObservedGeneration: 2, LastTransitionTime: now,
	})
}

func condition(b *v1alpha1.MetricsBackend, kind string) *metav1.Condition {
	return meta.FindStatusCondition(b.Status.Conditions, kind)
}

// One bad status for each rule, and good ones that have no problem.
func TestLint(t *testing.T) {
	cases := map[string]struct {
		from   func() *v1alpha1.MetricsBackend
		change func(b *v1alpha1.MetricsBackend)
		want   string
	}{
		"ready":   {from: ready},
		"working": {from: working},
		"not looked at yet": {from: ready, change: func(b *v1alpha1.MetricsBackend) {
			b.Status = v1alpha1.MetricsBackendStatus{ObservedGeneration: -1}
		}},
		"nothing, and looked at": {from: ready, change: func(b *v1alpha1.MetricsBackend) { b.Status.Conditions = nil }, want: "no conditions, and observedGeneration is 2"},
		"twice": {from: ready, change: func(b *v1alpha1.MetricsBackend) {
			b.Status.Conditions = append(b.Status.Conditions, b.Status.Conditions[0])
		}, want: "Available is there twice"},
		"of the future":    {from: ready, change: func(b *v1alpha1.MetricsBackend) { b.Status.Conditions[0].ObservedGeneration = 3 }, want: "Available has observedGeneration 3"},
		"of no generation": {from: ready, change: func(b *v1alpha1.MetricsBackend) { b.Status.Conditions[0].ObservedGeneration = 0 }, want: "Available has observedGeneration 0"},
		"no message":       {from: ready, change: func(b *v1alpha1.MetricsBackend) { b.Status.Conditions[0].Message = "" }, want: "Available lacks a reason, message or time"},
		"abnormal, False": {from: ready, change: func(b *v1alpha1.MetricsBackend) {
			set(b, v1alpha1.ConditionStalled, metav1.ConditionFalse, v1alpha1.ReasonSucceeded)
		}, want: "Stalled is abnormal-true, and False"},
		"a new time": {from: ready, change: func(b *v1alpha1.MetricsBackend) {
			b.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(time.Second))
		}, want: "Available stayed True, and its lastTransitionTime changed"},
		"no Ready": {from: ready, change: func(b *v1alpha1.MetricsBackend) {
			meta.RemoveStatusCondition(&b.Status.Conditions, v1alpha1.ConditionReady)
		}, want: "no Ready: kstatus"},
		"two causes": {from: working, change: func(b *v1alpha1.MetricsBackend) {
			set(b, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonProgressing)
		}, want: "Reconciling and Stalled at once"},
		"ready, and at work": {from: working, change: func(b *v1alpha1.MetricsBackend) {
			set(b, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
		}, want: "Ready, and Reconciling"},
		"no cause": {from: working, change: func(b *v1alpha1.MetricsBackend) {
			meta.RemoveStatusCondition(&b.Status.Conditions, v1alpha1.ConditionReconciling)
		}, want: "Ready is Unknown, and neither"},
		"two stories":         {from: working, change: func(b *v1alpha1.MetricsBackend) { condition(b, v1alpha1.ConditionReady).Message = "other" }, want: "tell two stories"},
		"Ready of before":     {from: ready, change: func(b *v1alpha1.MetricsBackend) { condition(b, v1alpha1.ConditionReady).ObservedGeneration = 1 }, want: "Ready speaks of generation 1, the status of 2"},
		"an area from before": {from: ready, change: func(b *v1alpha1.MetricsBackend) { b.Status.Conditions[0].ObservedGeneration = 1 }, want: "kubectl wait would not end"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before, b := tc.from(), tc.from()
			if tc.change != nil {
				tc.change(b)
			}
			problems := strings.Join(Lint(before, b), "\n")
			if tc.want == "" && problems != "" || !strings.Contains(problems, tc.want) {
				t.Errorf("got %q, want %q", problems, tc.want)
			}
		})
	}
}

// What a tool may say wrongly, one for each rule.
func TestProblems(t *testing.T) {
	deleted := ready()
	deleted.DeletionTimestamp = &now
	stalled := ready()
	set(stalled, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonInvalid)
	cases := map[string]struct {
		backend *v1alpha1.MetricsBackend
		kstatus status.Status
		argo    string
		want    string
	}{
		"current":               {backend: ready(), kstatus: status.CurrentStatus, argo: "Healthy"},
		"terminating":           {backend: deleted, kstatus: status.TerminatingStatus, argo: "Progressing"},
		"deleted, current":      {backend: deleted, kstatus: status.CurrentStatus, argo: "Healthy", want: "it is Terminating if and only if it is being deleted"},
		"stalled, in progress":  {backend: stalled, kstatus: status.InProgressStatus, argo: "Progressing", want: "it is Failed if and only if it is stalled"},
		"failed, not stalled":   {backend: ready(), kstatus: status.FailedStatus, argo: "Degraded", want: "it is Failed if and only if it is stalled"},
		"current, not ready":    {backend: working(), kstatus: status.CurrentStatus, argo: "Healthy", want: "it is Current, and not Ready"},
		"Argo CD is too early":  {backend: working(), kstatus: status.InProgressStatus, argo: "Healthy", want: "the tools disagree"},
		"Argo CD does not know": {backend: ready(), kstatus: status.CurrentStatus, argo: "Unknown", want: "the tools disagree"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			reading := Reading{status.Result{Status: tc.kstatus}, argocd.Health{Status: tc.argo}}
			if got := strings.Join(reading.problems(tc.backend), "\n"); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
