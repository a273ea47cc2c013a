// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

const (
	// rulesShown bounds the rules that the condition explains.
	rulesShown = 3
	// maxRuleMessage bounds a rule's message, in bytes.
	maxRuleMessage = 512
)

// Unhealthy are the rules that the status names, and how many there are.
type Unhealthy struct {
	Rules          []v1alpha1.RuleStatus
	Count, Failing int32
}

// Rules evaluates the pods' reports about rules, and returns the unhealthy ones. The report of one
// pod is enough.
func (in *Input) Rules(reports []*v1alpha1.SourceReport) (result Result, rules Unhealthy) {
	if !in.HasRules() {
		return Result{metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "the spec has no rules and routes"}, rules
	}
	counted, failing := 0, 0
	for _, report := range reports {
		counted, failing = max(counted, report.RuleCount), max(failing, report.FailingRules)
	}
	var reported, held []v1alpha1.RuleStatus
	still := sets.Set[Key]{}
	for _, now := range reportedRules(reports) {
		still.Insert(ruleKey(now))
		if in.isRuleTransient(now) {
			held = append(held, now)
			continue
		}
		now.Message = in.debounceMessage(Key{ruleMessageDiffers, now.Path, now.Reason}, in.storedRule(now).Message, now.Message)
		reported = append(reported, now)
	}
	// Failures that ended, or are of another spec, start over.
	in.Streaks.ResetFunc(func(key Key) bool { return key.failure == ruleFailing && !still.Has(key) })
	// Reports name at most 50 rules; their counts include the others.
	bad := failingPaths(reported)
	failing = max(failing-len(failingPaths(held).Difference(bad)), len(bad))
	rules = Unhealthy{worstRules(reported, v1alpha1.MaxRuleStatuses), servingclient.Clamp(counted), servingclient.Clamp(failing)}
	switch {
	case failing > 0:
		return describeRules(reported, failing, counted), rules
	case len(reported) > 0:
		return Result{metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "all rules are in force; status.rules has remarks"}, rules
	}
	return Result{metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "all rules are in force"}, rules
}

// worstRules returns at most that many rules, the most severe ones, in their order.
func worstRules(reported []v1alpha1.RuleStatus, most int) []v1alpha1.RuleStatus {
	if len(reported) <= most {
		return reported
	}
	worst := slices.Clone(reported)
	slices.SortStableFunc(worst, compareSeverity)
	worst = worst[:most]
	slices.SortStableFunc(worst, compareRules)
	return worst
}

// compareSeverity orders rules by their state: those first that cannot be compiled.
func compareSeverity(a, b v1alpha1.RuleStatus) int {
	return cmp.Compare(a.State.Severity(), b.State.Severity())
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

// isRuleTransient reports whether a failure is within its grace period. Rules that cannot
// be compiled, and changes of the spec, have none.
func (in *Input) isRuleTransient(now v1alpha1.RuleStatus) bool {
	known := in.condition(v1alpha1.ConditionRulesReady)
	reported := now.State == v1alpha1.RuleInvalid || known.ObservedGeneration != in.Generation ||
		known.Status == metav1.ConditionUnknown || in.storedRule(now).Path != ""
	failing := in.Streaks.Set(ruleKey(now), !reported)
	return !reported && failing.Elapsed < Grace
}

func ruleKey(rule v1alpha1.RuleStatus) Key { return Key{ruleFailing, rule.Path, rule.Reason} }

// storedRule returns the stored state of a rule and reason, if any.
func (in *Input) storedRule(now v1alpha1.RuleStatus) v1alpha1.RuleStatus {
	for _, known := range in.Stored.Rules {
		if known.Path == now.Path && known.Reason == now.Reason {
			return known
		}
	}
	return v1alpha1.RuleStatus{}
}

// reportedRules merges the pods' reports, in the order of the spec.
func reportedRules(reports []*v1alpha1.SourceReport) []v1alpha1.RuleStatus {
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
		rules[i].Message = servingclient.WithPods(rules[i].Message, pods[key{rules[i].Path, rules[i].Reason}], len(reports))
	}
	slices.SortStableFunc(rules, compareRules)
	return rules
}

// ruleState maps unknown states to RuleFailing: the status accepts no others.
func ruleState(rule v1alpha1.RuleHealth) v1alpha1.RuleState {
	switch rule.State {
	case v1alpha1.RuleInvalid, v1alpha1.RuleWarning:
		return rule.State
	}
	return v1alpha1.RuleFailing
}

// splitPath splits spec.customMetrics.rules[10] into the list and the index.
func splitPath(path string) (list string, index int) {
	list, number, _ := strings.Cut(path, "[")
	number, _, _ = strings.Cut(number, "]")
	index, _ = strconv.Atoi(number) // no number sorts first
	return list, index
}

// describeRules describes failing rules, those first that cannot be compiled.
func describeRules(reported []v1alpha1.RuleStatus, failing, all int) Result {
	shown := slices.DeleteFunc(slices.Clone(reported), func(rule v1alpha1.RuleStatus) bool {
		return rule.State == v1alpha1.RuleWarning
	})
	slices.SortStableFunc(shown, compareSeverity)
	reason, remedy := v1alpha1.ReasonRulesFailing, "The other rules work. See status.rules."
	if len(shown) > 0 && shown[0].State == v1alpha1.RuleInvalid {
		reason, remedy = v1alpha1.ReasonRulesInvalid, "Correct the spec; the other rules work. See status.rules."
	}
	var parts []string
	for _, rule := range shown[:min(len(shown), rulesShown)] {
		parts = append(parts, fmt.Sprintf("%s: %s: %s.", rule.Path, rule.Reason, strings.TrimRight(rule.Message, ". ")))
	}
	return Result{metav1.ConditionFalse, reason, fmt.Sprintf("%d of %d rules do not work. %s %s",
		failing, all, strings.Join(parts, " "), remedy)}
}

// HasRules reports whether the spec has any rule, or any route, which pods report like one.
func (in *Input) HasRules() bool {
	spec := &in.Spec
	return spec.ResourceMetrics != nil && spec.ResourceMetrics.Rules != nil ||
		spec.CustomMetrics != nil && len(spec.CustomMetrics.Rules)+len(spec.CustomMetrics.Routes) > 0 ||
		spec.ExternalMetrics != nil && len(spec.ExternalMetrics.Rules)+len(spec.ExternalMetrics.Routes) > 0
}
