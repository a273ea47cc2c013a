// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"fmt"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// CompiledPolicyRule is a rule of an ExternalMetricsPolicy that was read.
// +kubebuilder:object:generate=false
type CompiledPolicyRule struct {
	// Metric matches whole names; nil where the regular expression cannot be read,
	// and then the rule is for every name.
	Metric *regexp.Regexp
	// Selector is what a query must select a subset of; nil denies.
	Selector labels.Selector
	// Err is why the rule cannot be read. Such a rule denies: it fails closed, since
	// what it would have forbidden is not known.
	Err error
}

// Matches tells whether the rule decides for a metric.
func (r *CompiledPolicyRule) Matches(metric string) bool {
	return r.Metric == nil || r.Metric.MatchString(metric)
}

// Compile reads the rules, in their order. Each has its own error.
func (s *ExternalMetricsPolicySpec) Compile() []CompiledPolicyRule {
	rules := make([]CompiledPolicyRule, 0, len(s.Rules))
	for i := range s.Rules {
		rules = append(rules, s.Rules[i].compile(field.NewPath("spec", "rules").Index(i)))
	}
	return rules
}

func (r *ExternalMetricsPolicyRule) compile(path *field.Path) CompiledPolicyRule {
	metric, err := wholeName(r.Metric)
	if err != nil {
		return CompiledPolicyRule{Err: field.Invalid(path.Child("metric"), r.Metric, err.Error())}
	}
	compiled := CompiledPolicyRule{Metric: metric}
	switch {
	case (r.Selector != nil) == r.Deny:
		compiled.Err = field.Forbidden(path, "needs selector (what may be read; `selector: {}` allows everything) or deny: true, and not both")
	case r.Selector != nil:
		compiled.Selector, compiled.Err = compileSelector(path.Child("selector"), r.Selector)
	}
	return compiled
}

// wholeName compiles a regular expression that whole names must match.
func wholeName(expression string) (*regexp.Regexp, error) {
	if expression == "" {
		return nil, errors.New("must name the metrics that the rule is for")
	}
	// By itself first: between parentheses "a)(b" would be one.
	if _, err := regexp.Compile(expression); err != nil {
		return nil, fmt.Errorf("must be a regular expression in RE2's syntax: %w", err)
	}
	return regexp.Compile(`^(?:` + expression + `)$`)
}

func compileSelector(path *field.Path, selector *metav1.LabelSelector) (labels.Selector, error) {
	if errs := metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return compiled, nil
}
