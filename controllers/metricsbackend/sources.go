// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// conditionResult is one part's contribution to a condition.
type conditionResult struct {
	status          metav1.ConditionStatus
	reason, message string
}

// sources summarizes the reports of the ready pods about kubelets, spec.sources and
// rules.
func (r *Reconciler) sources(_ context.Context, s *reconcileState) error {
	both := []string{v1alpha1.ConditionSourcesHealthy, v1alpha1.ConditionRulesReady}
	status := &s.backend.Status
	if !s.deploys() {
		s.history.streaks.Reset(stateKey{state: kubeletsFailing})
		status.Sources, status.Rules, status.RuleCount, status.FailingRules = nil, nil, 0, 0
		for _, kind := range both {
			s.setCondition(kind, metav1.ConditionUnknown, v1alpha1.ReasonNotApplicable,
				"only the operator's own serving component reports on kubelets, sources and rules, and spec.existing is set")
		}
		return nil
	}
	reports := s.sourceReports()
	if len(reports) == 0 {
		for _, kind := range both {
			if s.probed.transient && s.wasTrue(kind) {
				continue
			}
			s.setCondition(kind, metav1.ConditionUnknown, v1alpha1.ReasonDependencyNotReady,
				"no ready serving pod reports on its sources: see ServingReady")
		}
		if !s.probed.transient {
			s.history.streaks.Reset(stateKey{state: kubeletsFailing})
		}
		return nil
	}
	if late := s.podWithOldSettings(); late != "" {
		s.history.streaks.Reset(stateKey{state: kubeletsFailing})
		s.setSourcesHealthy(conditionResult{metav1.ConditionUnknown, v1alpha1.ReasonProgressing, late})
		if s.rulesInSpec() {
			s.setCondition(v1alpha1.ConditionRulesReady, metav1.ConditionUnknown, v1alpha1.ReasonProgressing, late)
			return nil
		}
		s.setResult(v1alpha1.ConditionRulesReady, s.rules(reports))
		return nil
	}
	var parts []conditionResult
	if s.scrapesKubelets() {
		parts = append(parts, s.kubeletsResult(reports))
	}
	if len(s.spec.Sources) > 0 {
		parts = append(parts, s.specSources(reports))
	} else {
		status.Sources = nil
	}
	s.setSourcesHealthy(parts...)
	s.setResult(v1alpha1.ConditionRulesReady, s.rules(reports))
	return nil
}

// scrapesKubelets reports whether resource metrics come from kubelets.
func (s *reconcileState) scrapesKubelets() bool {
	return s.spec.ResourceMetrics != nil && s.spec.ResourceMetrics.Rules == nil
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

// podWithOldSettings describes the first pod that does not use the current settings yet,
// or returns "".
func (s *reconcileState) podWithOldSettings() string {
	for _, p := range s.rollout.pods.ready() {
		if p.answer != nil && p.answer.Sources != nil && p.answer.Sources.ObservedGeneration < s.backend.Generation {
			return fmt.Sprintf("pod %s does not use the settings of generation %d yet", p.Name, s.backend.Generation)
		}
	}
	return ""
}

// setSourcesHealthy merges the results: False wins over Unknown, and that over True.
func (s *reconcileState) setSourcesHealthy(parts ...conditionResult) {
	for _, status := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionUnknown, metav1.ConditionTrue} {
		var reason string
		var messages []string
		for _, part := range parts {
			if part.status == status {
				if reason == "" {
					reason = part.reason
				}
				messages = append(messages, part.message)
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

// debounceMessage returns old, the message in the status, until it has differed from
// message for messageGrace. The caller checked that nothing else differs.
func (s *reconcileState) debounceMessage(key stateKey, old, message string) string {
	if differs := old != "" && old != message; differs && s.history.streaks.Set(key, true).Elapsed < messageGrace {
		return old
	}
	s.history.streaks.Reset(key)
	return message
}
