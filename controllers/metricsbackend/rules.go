// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	// rulesShown bounds how many rules the condition explains.
	rulesShown = 3
	// maxRuleMessage bounds a rule's message, in bytes.
	maxRuleMessage = 512
)

// rules judges the rules of the spec and puts those into the status that are not
// as they should be. One pod that says so is enough.
func (r *Reconciler) rules(s *scope, reports []*v1alpha1.SourceReport) judgment {
	status := &s.backend.Status
	status.Rules, status.RuleCount, status.FailingRules = nil, 0, 0
	if !s.rulesInSpec() {
		return judgment{metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "the spec has no rules"}
	}
	counted, failing := 0, 0
	for _, report := range reports {
		counted, failing = max(counted, report.RuleCount), max(failing, report.FailingRules)
	}
	if counted == 0 {
		return judgment{
			metav1.ConditionUnknown, v1alpha1.ReasonNotReported,
			"the image of the serving pods is too old to tell of rules: use the one released with this operator",
		}
	}
	seen := rulesSeen(reports)
	told := slices.DeleteFunc(slices.Clone(seen), func(now v1alpha1.RuleStatus) bool { return r.awaitRule(s, now) })
	for i := range told {
		if was := s.ruleBefore(told[i].Path); was.Reason == told[i].Reason {
			told[i].Message = r.settled(s, "rule "+told[i].Path, was.Message, told[i].Message)
		}
	}
	// Reports name no more than 50; the numbers count the others too.
	failing = max(failing, len(seen)) - (len(seen) - len(told))
	status.RuleCount, status.FailingRules = count32(counted), count32(failing)
	status.Rules = told[:min(len(told), v1alpha1.MaxRuleStatuses)]
	if failing <= 0 {
		status.FailingRules = 0
		return judgment{metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "all rules are in force"}
	}
	return describeRules(told, failing, counted)
}

func count32(n int) int32 { return int32(min(max(n, 0), 1<<30)) } //nolint:gosec // bounded

// awaitRule tells whether a rule that was well may be so again soon, so that
// nothing is said yet. What cannot be compiled, and what the user has just
// written, is told at once.
func (r *Reconciler) awaitRule(s *scope, now v1alpha1.RuleStatus) bool {
	moment := "rule fails " + now.Path
	known := s.condition(v1alpha1.ConditionRulesReady)
	if now.Reason == v1alpha1.RuleInvalid || known.ObservedGeneration != s.backend.Generation ||
		known.Status == metav1.ConditionUnknown || s.ruleBefore(now.Path).Path != "" {
		r.memory.over(s.backend.Name, moment)
		return false
	}
	return s.now.Sub(r.memory.since(s.backend.Name, moment, s.now)) < sourcesPatience
}

func (s *scope) ruleBefore(path string) v1alpha1.RuleStatus {
	for _, known := range s.before.Rules {
		if known.Path == path {
			return known
		}
	}
	return v1alpha1.RuleStatus{}
}

// rulesSeen are the rules of which any pod says that they are not as they should
// be, in the order of the spec.
func rulesSeen(reports []*v1alpha1.SourceReport) []v1alpha1.RuleStatus {
	var rules []v1alpha1.RuleStatus
	pods := map[string]int{}
	for _, report := range reports {
		for _, rule := range report.Rules[:min(len(report.Rules), v1alpha1.MaxRuleStatuses)] {
			path := shorten(printable(rule.Path), maxConsumerName)
			if pods[path]++; pods[path] > 1 {
				continue
			}
			rules = append(rules, v1alpha1.RuleStatus{
				Path: path, Reason: printable(cmp.Or(rule.Reason, "Unknown")), Message: printableText(rule.Message, maxRuleMessage),
			})
		}
	}
	for i := range rules {
		rules[i].Message = withPods(rules[i].Message, pods[rules[i].Path], len(reports))
	}
	slices.SortStableFunc(rules, func(a, b v1alpha1.RuleStatus) int {
		listA, indexA := splitPath(a.Path)
		listB, indexB := splitPath(b.Path)
		return cmp.Or(cmp.Compare(listA, listB), cmp.Compare(indexA, indexB))
	})
	return rules
}

// splitPath splits spec.customMetrics.rules[10] into the list and its index.
func splitPath(path string) (list string, index int) {
	list, number, _ := strings.Cut(path, "[")
	number, _, _ = strings.Cut(number, "]")
	index, _ = strconv.Atoi(number) // no number sorts first
	return list, index
}

// describeRules tells of the rules that cannot be compiled first.
func describeRules(told []v1alpha1.RuleStatus, failing, all int) judgment {
	isInvalid := func(rule v1alpha1.RuleStatus) bool { return rule.Reason == v1alpha1.RuleInvalid }
	reason, remedy := v1alpha1.ReasonRulesFailing, "The other rules work. See status.rules."
	if slices.ContainsFunc(told, isInvalid) {
		reason, remedy = v1alpha1.ReasonRulesInvalid, "Correct them in the spec; the other rules work. See status.rules."
	}
	shown := slices.Clone(told)
	slices.SortStableFunc(shown, func(a, b v1alpha1.RuleStatus) int {
		return cmp.Compare(btoi(!isInvalid(a)), btoi(!isInvalid(b)))
	})
	shown = shown[:min(len(shown), rulesShown)]
	var parts []string
	for _, rule := range shown {
		parts = append(parts, fmt.Sprintf("%s: %s: %s.", rule.Path, rule.Reason, strings.TrimRight(rule.Message, ". ")))
	}
	return judgment{metav1.ConditionFalse, reason, fmt.Sprintf("%d of %d rules are not as they should be. %s %s",
		failing, all, strings.Join(parts, " "), remedy)}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (s *scope) markRules(v judgment) {
	s.mark(v1alpha1.ConditionRulesReady, v.status, v.reason, v.message)
}

// rulesInSpec tells whether there is any rule.
func (s *scope) rulesInSpec() bool {
	spec := &s.spec
	return spec.ResourceMetrics != nil && spec.ResourceMetrics.Rules != nil ||
		spec.CustomMetrics != nil && len(spec.CustomMetrics.Rules) > 0 ||
		spec.ExternalMetrics != nil && len(spec.ExternalMetrics.Rules) > 0
}
