// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"fmt"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateExternalMetricsPolicy returns the errors in a policy: serving denies the
// metrics of invalid rules, and the condition Ready reports them.
func ValidateExternalMetricsPolicy(spec *ExternalMetricsPolicySpec) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	for i := range spec.Rules {
		if _, _, err := spec.Rules[i].Compile(); err != nil {
			errs = append(errs, field.Invalid(path.Child("rules").Index(i), field.OmitValueType{}, err.Error()))
		}
	}
	return errs
}

// Compile returns the expression of a rule, for MatchesWhole, and its selector, which is
// nil if the rule denies. If metric is invalid it is nil, and the rule applies to every
// name. A rule with an error must deny, since it is not known what it would have denied.
func (r *ExternalMetricsPolicyRule) Compile() (metric *regexp.Regexp, selector labels.Selector, err error) {
	if r.Metric == "" {
		// It would only match the empty name.
		return nil, nil, errors.New("metric is empty: it must be a regular expression that whole names match, such as .*")
	}
	if metric, err = regexp.Compile(r.Metric); err != nil {
		return nil, nil, fmt.Errorf("metric is no regular expression (RE2): %w", err)
	}
	metric.Longest()
	switch {
	case r.Deny && r.Selector != nil:
		return metric, nil, errors.New("it has both selector and deny: remove one of them")
	case r.Deny:
		return metric, nil, nil
	case r.Selector == nil:
		return metric, nil, errors.New("it has neither selector nor deny: set one; the selector {} allows every query")
	}
	if selector, err = metav1.LabelSelectorAsSelector(r.Selector); err != nil {
		return metric, nil, fmt.Errorf("selector: %w", err)
	}
	return metric, selector, nil
}

// MatchesWhole reports whether the metric of a compiled rule matches a whole name; nil
// matches every name. Anchors around the expression would not work: it may have an open
// quotation, as in `\Qa.b`.
func MatchesWhole(metric *regexp.Regexp, name string) bool {
	if metric == nil {
		return true
	}
	// Compile made it leftmost-longest: a whole match is the longest one.
	found := metric.FindStringIndex(name)
	return found != nil && found[0] == 0 && found[1] == len(name)
}
