// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/reports"
)

// sources summarizes the reports of the ready pods about kubelets, spec.sources and
// rules.
func (r *Reconciler) sources(_ context.Context, s *reconcileState) error {
	both := []string{v1alpha1.ConditionSourcesHealthy, v1alpha1.ConditionRulesReady}
	status := &s.backend.Status
	if !s.deploys() {
		reports.ForgetKubelets(s.history.reports)
		status.Sources, status.Rules, status.RuleCount, status.FailingRules = nil, nil, 0, 0
		for _, kind := range both {
			s.setCondition(kind, metav1.ConditionUnknown, v1alpha1.ReasonNotApplicable,
				"only the operator's own serving component reports on kubelets, sources and rules, and spec.existing is set")
		}
		return nil
	}
	in := &reports.Input{
		Backend: s.backend.Name, Generation: s.backend.Generation, Spec: s.spec, Serving: s.serving,
		Stored: &s.storedStatus, Now: s.now, Streaks: s.history.reports,
	}
	all := s.sourceReports()
	if len(all) == 0 {
		for _, kind := range both {
			if s.probed.transient && s.wasTrue(kind) {
				continue
			}
			s.setCondition(kind, metav1.ConditionUnknown, v1alpha1.ReasonDependencyNotReady,
				"no ready serving pod reports on its sources: see ServingReady")
		}
		if !s.probed.transient {
			reports.ForgetKubelets(s.history.reports)
		}
		return nil
	}
	status.KubeletsVerified = status.KubeletsVerified || slices.ContainsFunc(all, func(r *v1alpha1.SourceReport) bool { return r.Kubelets.Verified > 0 })
	if p := find(s.rollout.pods.ready(), func(p pod) bool {
		return p.answer != nil && p.answer.Sources != nil && p.answer.Sources.ObservedGeneration < s.backend.Generation
	}); p.Pod != nil {
		late := fmt.Sprintf("pod %s does not use the settings of generation %d yet", p.Name, s.backend.Generation)
		reports.ForgetKubelets(s.history.reports)
		s.setSourcesHealthy(reports.Result{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonProgressing, Message: late})
		if in.HasRules() {
			s.setCondition(v1alpha1.ConditionRulesReady, metav1.ConditionUnknown, v1alpha1.ReasonProgressing, late)
		} else {
			s.setRulesReady(in.Rules(all))
		}
		return nil
	}
	var parts []reports.Result
	if rm := s.spec.ResourceMetrics; rm != nil && rm.Rules == nil { // they come from kubelets
		parts = append(parts, in.Kubelets(all))
	}
	status.Sources = nil
	if len(s.spec.Sources) > 0 {
		var result reports.Result
		result, status.Sources = in.Sources(all)
		parts = append(parts, result)
	}
	s.setSourcesHealthy(parts...)
	s.setRulesReady(in.Rules(all))
	return nil
}

func (s *reconcileState) setRulesReady(result reports.Result, unhealthy reports.Unhealthy) {
	status := &s.backend.Status
	status.Rules, status.RuleCount, status.FailingRules = unhealthy.Rules, unhealthy.Count, unhealthy.Failing
	s.setCondition(v1alpha1.ConditionRulesReady, result.Status, result.Reason, result.Message)
}

// sourceReports returns the reports of the ready pods, in the order of pods.
func (s *reconcileState) sourceReports() []*v1alpha1.SourceReport {
	var reports []*v1alpha1.SourceReport
	for _, p := range s.rollout.pods.ready() {
		if p.answer != nil && p.answer.Sources != nil {
			reports = append(reports, p.answer.Sources)
		}
	}
	return reports
}

// setSourcesHealthy merges the results: False wins over Unknown, and that over True.
func (s *reconcileState) setSourcesHealthy(parts ...reports.Result) {
	for _, status := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionUnknown, metav1.ConditionTrue} {
		var reason string
		var messages []string
		for _, part := range parts {
			if part.Status == status {
				if reason == "" {
					reason = part.Reason
				}
				messages = append(messages, part.Message)
			}
		}
		if reason == "" {
			continue
		}
		separator := " "
		if status != metav1.ConditionFalse {
			separator = "; "
		}
		s.setCondition(v1alpha1.ConditionSourcesHealthy, status, reason, strings.Join(messages, separator))
		return
	}
	s.setCondition(v1alpha1.ConditionSourcesHealthy, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "the spec names no source")
}
