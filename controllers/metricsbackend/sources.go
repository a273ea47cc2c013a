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

// judgment is what a part makes of a condition.
type judgment struct {
	status          metav1.ConditionStatus
	reason, message string
}

// sources sums up how the ready pods see their kubelets, spec.sources and rules.
func (r *Reconciler) sources(_ context.Context, s *scope) error {
	both := []string{v1alpha1.ConditionSourcesHealthy, v1alpha1.ConditionRulesReady}
	status := &s.backend.Status
	if !s.deploys() {
		s.history.streaks.Reset(stateKey{state: kubeletsFailing})
		status.Sources, status.Rules, status.RuleCount, status.FailingRules = nil, nil, 0, 0
		for _, kind := range both {
			s.mark(kind, metav1.ConditionUnknown, v1alpha1.ReasonNotApplicable,
				"only the operator's own serving component tells how it sees kubelets, sources and rules, and spec.existing is set")
		}
		return nil
	}
	reports := s.sourceReports()
	if len(reports) == 0 {
		for _, kind := range both {
			if s.transient && s.wasTrue(kind) {
				continue
			}
			s.mark(kind, metav1.ConditionUnknown, v1alpha1.ReasonDependencyNotReady,
				"no ready serving pod tells how it sees its sources: see ServingReady")
		}
		if !s.transient {
			s.history.streaks.Reset(stateKey{state: kubeletsFailing})
		}
		return nil
	}
	if late := s.late(); late != "" {
		s.history.streaks.Reset(stateKey{state: kubeletsFailing})
		s.markSources(judgment{metav1.ConditionUnknown, v1alpha1.ReasonProgressing, late})
		if s.rulesInSpec() {
			s.mark(v1alpha1.ConditionRulesReady, metav1.ConditionUnknown, v1alpha1.ReasonProgressing, late)
			return nil
		}
		s.markRules(s.rules(reports))
		return nil
	}
	var parts []judgment
	if s.scrapesKubelets() {
		parts = append(parts, s.kubelets(reports))
	}
	if len(s.spec.Sources) > 0 {
		parts = append(parts, s.specSources(reports))
	} else {
		status.Sources = nil
	}
	s.markSources(parts...)
	s.markRules(s.rules(reports))
	return nil
}

// scrapesKubelets tells whether resource metrics are served, and from kubelets.
func (s *scope) scrapesKubelets() bool {
	return s.spec.ResourceMetrics != nil && s.spec.ResourceMetrics.Rules == nil
}

// sourceReports are those of the ready pods, in the pods' order.
func (s *scope) sourceReports() []*v1alpha1.SourceReport {
	var reports []*v1alpha1.SourceReport
	for _, p := range s.readyPods() {
		if p.answer != nil && p.answer.Sources != nil {
			reports = append(reports, p.answer.Sources)
		}
	}
	return reports
}

// late names the first pod that does not work with the current settings yet.
func (s *scope) late() string {
	for _, p := range s.readyPods() {
		if p.answer != nil && p.answer.Sources != nil && p.answer.Sources.ObservedGeneration < s.backend.Generation {
			return fmt.Sprintf("pod %s has not taken up the settings of generation %d yet", p.Name, s.backend.Generation)
		}
	}
	return ""
}

// markSources makes one condition of its parts: what fails counts before what is
// not known, and that before what is well.
func (s *scope) markSources(parts ...judgment) {
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
		s.mark(v1alpha1.ConditionSourcesHealthy, status, reason, strings.Join(messages, separator))
		return
	}
	s.mark(v1alpha1.ConditionSourcesHealthy, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "the spec names no source")
}

// debounceMessage returns old, the message in the status, until it has differed from
// message for messageGrace. The caller checked that nothing else differs.
func (s *scope) debounceMessage(key stateKey, old, message string) string {
	if differs := old != "" && old != message; differs && s.history.streaks.Observe(key, true).Elapsed < messageGrace {
		return old
	}
	s.history.streaks.Reset(key)
	return message
}
