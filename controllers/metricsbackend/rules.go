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
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

const (
	// rulesShown bounds how many rules the condition explains.
	rulesShown = 3
	// maxRuleMessage bounds a rule's message, in bytes.
	maxRuleMessage = 512
)

// rules judges the rules of the spec and puts those into the status that are not
// as they should be. One pod that says so is enough.
func (s *scope) rules(reports []*v1alpha1.SourceReport) judgment {
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
	var told, held []v1alpha1.RuleStatus
	still := sets.Set[stateKey]{}
	for _, now := range rulesSeen(reports) {
		still.Insert(ruleKey(now))
		if s.awaitRule(now) {
			held = append(held, now)
			continue
		}
		now.Message = s.debounceMessage(stateKey{ruleMessageDiffers, now.Path, now.Reason}, s.ruleBefore(now).Message, now.Message)
		told = append(told, now)
	}
	// What is over, or of another spec, does not count when it comes again.
	s.history.streaks.ResetFunc(func(key stateKey) bool { return key.state == ruleFailing && !still.Has(key) })
	// Reports name no more than 50; the numbers count the others too.
	bad := failingPaths(told)
	failing = max(failing-len(failingPaths(held).Difference(bad)), len(bad))
	status.RuleCount, status.FailingRules = count32(counted), count32(failing)
	status.Rules = worstRules(told, v1alpha1.MaxRuleStatuses)
	switch {
	case failing > 0:
		return describeRules(told, failing, counted)
	case len(told) > 0:
		return judgment{metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "all rules are in force; status.rules has remarks"}
	}
	return judgment{metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "all rules are in force"}
}

// worstRules leaves out the mildest where there are too many, and keeps the order.
func worstRules(told []v1alpha1.RuleStatus, most int) []v1alpha1.RuleStatus {
	if len(told) <= most {
		return told
	}
	worst := slices.Clone(told)
	slices.SortStableFunc(worst, func(a, b v1alpha1.RuleStatus) int { return cmp.Compare(a.State.Severity(), b.State.Severity()) })
	worst = worst[:most]
	slices.SortStableFunc(worst, compareRules)
	return worst
}

// compareRules orders rules as the spec does.
func compareRules(a, b v1alpha1.RuleStatus) int {
	listA, indexA := splitPath(a.Path)
	listB, indexB := splitPath(b.Path)
	return cmp.Or(cmp.Compare(listA, listB), cmp.Compare(indexA, indexB))
}

func failingPaths(rules []v1alpha1.RuleStatus) sets.Set[string] {
	paths := sets.Set[string]{}
	for _, rule := range rules {
		if rule.State != v1alpha1.RuleWarning {
			paths.Insert(rule.Path)
		}
	}
	return paths
}

func count32(n int) int32 { return int32(min(max(n, 0), 1<<30)) } //nolint:gosec // bounded

// awaitRule tells whether a rule that was well may be so again soon, so that
// nothing is said yet. What cannot be compiled, and what the user has just
// written, is told at once.
func (s *scope) awaitRule(now v1alpha1.RuleStatus) bool {
	known := s.condition(v1alpha1.ConditionRulesReady)
	reported := now.State == v1alpha1.RuleInvalid || known.ObservedGeneration != s.backend.Generation ||
		known.Status == metav1.ConditionUnknown || s.ruleBefore(now).Path != ""
	failing := s.history.streaks.Observe(ruleKey(now), !reported)
	return !reported && failing.Elapsed < sourcesGrace
}

// ruleKey names that a rule fails for a reason.
func ruleKey(rule v1alpha1.RuleStatus) stateKey { return stateKey{ruleFailing, rule.Path, rule.Reason} }

// ruleBefore is what the status that was read says of the same; empty if nothing.
func (s *scope) ruleBefore(now v1alpha1.RuleStatus) v1alpha1.RuleStatus {
	for _, known := range s.before.Rules {
		if known.Path == now.Path && known.Reason == now.Reason {
			return known
		}
	}
	return v1alpha1.RuleStatus{}
}

// rulesSeen is what any pod says is wrong with rules, in the order of the spec.
func rulesSeen(reports []*v1alpha1.SourceReport) []v1alpha1.RuleStatus {
	type key struct{ path, reason string }
	var rules []v1alpha1.RuleStatus
	pods := map[key]int{}
	for _, report := range reports {
		of := sets.Set[key]{}
		for _, rule := range report.Rules[:min(len(report.Rules), v1alpha1.MaxRuleStatuses)] {
			k := key{printable(rule.Path), printable(cmp.Or(rule.Reason, "Unknown"))}
			if of.Has(k) {
				continue
			}
			of.Insert(k)
			if pods[k]++; pods[k] > 1 {
				continue
			}
			rules = append(rules, v1alpha1.RuleStatus{
				Path: k.path, State: ruleState(rule), Reason: k.reason, Message: text.Printable(rule.Message, maxRuleMessage),
			})
		}
	}
	for i := range rules {
		rules[i].Message = withPods(rules[i].Message, pods[key{rules[i].Path, rules[i].Reason}], len(reports))
	}
	slices.SortStableFunc(rules, compareRules)
	return rules
}

// ruleState trusts no pod with words that the status does not take.
func ruleState(rule v1alpha1.RuleHealth) v1alpha1.RuleState {
	switch rule.State {
	case v1alpha1.RuleInvalid, v1alpha1.RuleWarning:
		return rule.State
	}
	return v1alpha1.RuleFailing
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
	var invalid, others []v1alpha1.RuleStatus
	for _, rule := range told {
		switch rule.State {
		case v1alpha1.RuleInvalid:
			invalid = append(invalid, rule)
		case v1alpha1.RuleFailing:
			others = append(others, rule)
		}
	}
	reason, remedy := v1alpha1.ReasonRulesFailing, "The other rules work. See status.rules."
	if len(invalid) > 0 {
		reason, remedy = v1alpha1.ReasonRulesInvalid, "Correct the spec; the other rules work. See status.rules."
	}
	shown := slices.Concat(invalid, others)
	var parts []string
	for _, rule := range shown[:min(len(shown), rulesShown)] {
		parts = append(parts, fmt.Sprintf("%s: %s: %s.", rule.Path, rule.Reason, strings.TrimRight(rule.Message, ". ")))
	}
	return judgment{metav1.ConditionFalse, reason, fmt.Sprintf("%d of %d rules make no metrics. %s %s",
		failing, all, strings.Join(parts, " "), remedy)}
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
