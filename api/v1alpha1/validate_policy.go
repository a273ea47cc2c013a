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

// ValidateExternalMetricsPolicy returns everything in a policy that cannot be read:
// what serving denies for, and the policy's condition Ready tells of.
func ValidateExternalMetricsPolicy(spec *ExternalMetricsPolicySpec) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	for i, subject := range spec.Subjects {
		errs = append(errs, oneOf(path.Child("subjects").Index(i).Child("kind"), []PolicySubjectKind{subject.Kind}, PolicySubjectUser, PolicySubjectGroup)...)
	}
	for i := range spec.Rules {
		if _, _, err := spec.Rules[i].Compile(); err != nil {
			errs = append(errs, field.Invalid(path.Child("rules").Index(i), field.OmitValueType{}, err.Error()))
		}
	}
	return errs
}

// Compile reads a rule. metric is for MatchesWhole; it is nil where it cannot be read, and the rule is then
// for every name; selector is nil where the rule denies. A rule with an error denies
// whatever it may have been meant for: it fails closed, since what it would have
// forbidden is not known.
func (r *ExternalMetricsPolicyRule) Compile() (metric *regexp.Regexp, selector labels.Selector, err error) {
	if r.Metric == "" {
		// It would match the empty name alone, and never decide.
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

// MatchesWhole tells whether the metric of a compiled rule, which may be nil, matches
// a whole name. Anchors around the expression would not do: it may hold an open
// quotation, as in `\Qa.b`.
func MatchesWhole(metric *regexp.Regexp, name string) bool {
	if metric == nil {
		return true
	}
	// Of the matches at a name's start the longest tells whether all of it matches.
	found := metric.FindStringIndex(name)
	return found != nil && found[0] == 0 && found[1] == len(name)
}
