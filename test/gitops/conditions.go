// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Lint checks one stored version, and its step from the one before, by
// the rules for conditions of Kubernetes (KEP-1623), kstatus and Flux
// (fluxcd/pkg/runtime/conditions/check). before may be nil.
func Lint(before, now *v1alpha1.MetricsBackend) []string {
	var problems []string
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if len(now.Status.Conditions) == 0 {
		// Only ever before the first look, which this default of the CRD tells.
		if now.Status.ObservedGeneration != -1 {
			problem("no conditions, and observedGeneration is %d", now.Status.ObservedGeneration)
		}
		return problems
	}
	kinds := map[string]bool{}
	for _, c := range now.Status.Conditions {
		if kinds[c.Type] {
			problem("%s is there twice", c.Type)
		}
		kinds[c.Type] = true
		if c.ObservedGeneration == 0 || c.ObservedGeneration > now.Generation || c.ObservedGeneration > now.Status.ObservedGeneration {
			problem("%s has observedGeneration %d, the status %d, the object %d", c.Type, c.ObservedGeneration, now.Status.ObservedGeneration, now.Generation)
		}
		if c.Reason == "" || c.Message == "" || c.LastTransitionTime.IsZero() {
			problem("%s lacks a reason, message or time: %+v", c.Type, c)
		}
		if abnormal(c.Type) && c.Status != metav1.ConditionTrue {
			problem("%s is abnormal-true, and %s instead of absent", c.Type, c.Status)
		}
		if before == nil {
			continue
		}
		if was := meta.FindStatusCondition(before.Status.Conditions, c.Type); was != nil && was.Status == c.Status && !was.LastTransitionTime.Equal(&c.LastTransitionTime) {
			problem("%s stayed %s, and its lastTransitionTime changed", c.Type, c.Status)
		}
	}
	ready := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return append(problems, "no Ready: kstatus takes the object for finished")
	}
	var why []metav1.Condition
	for _, c := range now.Status.Conditions {
		if abnormal(c.Type) {
			why = append(why, c)
		}
	}
	switch {
	case len(why) > 1:
		problem("Reconciling and Stalled at once")
	case ready.Status == metav1.ConditionTrue && len(why) > 0:
		problem("Ready, and %s", why[0].Type)
	case ready.Status != metav1.ConditionTrue && len(why) == 0:
		problem("Ready is %s, and neither Reconciling nor Stalled", ready.Status)
	case len(why) == 1 && (why[0].Reason != ready.Reason || why[0].Message != ready.Message || why[0].ObservedGeneration != ready.ObservedGeneration):
		problem("Ready and %s tell two stories: %+v, %+v", why[0].Type, *ready, why[0])
	}
	if ready.ObservedGeneration != now.Status.ObservedGeneration {
		problem("Ready speaks of generation %d, the status of %d", ready.ObservedGeneration, now.Status.ObservedGeneration)
	}
	if ready.Status == metav1.ConditionTrue {
		for _, c := range now.Status.Conditions {
			if c.ObservedGeneration != ready.ObservedGeneration {
				problem("Ready of generation %d, and %s of %d: kubectl wait would not end", ready.ObservedGeneration, c.Type, c.ObservedGeneration)
			}
		}
	}
	return problems
}

func abnormal(kind string) bool {
	return kind == v1alpha1.ConditionReconciling || kind == v1alpha1.ConditionStalled
}
