// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"

	promlabels "github.com/prometheus/prometheus/model/labels"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
)

// selects says whether everything that an expression reads is selected by all of the
// client's selector.
func (q *request) selects(expression string) bool {
	if len(q.selected) == 0 {
		return true
	}
	for _, c := range promql.Carries(expression, q.selected) {
		if c != promql.CarriedByAll {
			return false
		}
	}
	return true
}

// inverted returns a matcher for what differs from values, or has any or none, which
// the expression has replaced. A template that uses the values of labels makes label
// =~"prod" of label!=prod: it would answer the opposite, and past policies.
func (q *request) inverted(expression string) (promql.Matcher, bool) {
	var negative []promql.Matcher
	for _, m := range q.selected {
		if m.Type == promlabels.MatchNotEqual || m.Type == promlabels.MatchNotRegexp || m.Value == "" {
			negative = append(negative, m)
		}
	}
	if len(negative) == 0 {
		return promql.Matcher{}, false
	}
	for i, c := range promql.Carries(expression, negative) {
		if c == promql.Replaced {
			return negative[i], true
		}
	}
	return promql.Matcher{}, false
}

// knownSelector selects among values by the labels that they have. What a query has
// summed up cannot be told any more.
type knownSelector struct {
	labels.Selector
	requirements labels.Requirements
}

// selectKnown returns nil for no selector.
func selectKnown(s labels.Selector) labels.Selector {
	if s == nil || s.Empty() {
		return nil
	}
	requirements, _ := s.Requirements()
	return &knownSelector{s, requirements}
}

func (s *knownSelector) Matches(l labels.Labels) bool {
	for i := range s.requirements {
		if r := &s.requirements[i]; l.Has(r.Key()) && !r.Matches(l) {
			return false
		}
	}
	return true
}

func (s *knownSelector) DeepCopySelector() labels.Selector {
	return selectKnown(s.Selector.DeepCopySelector())
}

// valuesByLabel returns the values by which a template may ask for each label. Of a label
// that is selected by more than once they are those that meet all of it: a template that
// took the values of one requirement would answer with what another one, and a policy that
// counts on it, excludes. A selector that contradicts itself is refused, since a template
// need not ask by the label where it does.
func valuesByLabel(selections []promql.Selection) (map[string][]string, error) {
	values := map[string][]string{}
	among, set, unset := map[string]bool{}, map[string]bool{}, map[string]bool{}
	var excluded []promql.Selection
	for _, s := range selections {
		label, without := s.Label, len(s.Values) == 0
		switch differs := s.Type == promlabels.MatchNotEqual || s.Type == promlabels.MatchNotRegexp; {
		case differs && without:
			set[label] = true
		case differs:
			excluded = append(excluded, s)
		case without:
			unset[label] = true
		case among[label]:
			values[label] = slices.DeleteFunc(slices.Clone(values[label]), func(v string) bool { return !slices.Contains(s.Values, v) })
		default:
			values[label], among[label] = s.Values, true
		}
		if _, known := values[label]; !known {
			values[label] = nil
		}
	}
	for _, s := range excluded {
		if among[s.Label] {
			values[s.Label] = slices.DeleteFunc(slices.Clone(values[s.Label]), func(v string) bool { return slices.Contains(s.Values, v) })
		} else {
			values[s.Label] = s.Values
		}
	}
	for label, of := range values {
		if among[label] && len(of) == 0 || unset[label] && (set[label] || among[label] && !slices.Contains(of, "")) {
			return nil, badRequest("the selector contradicts itself: no value of the label %q meets all that it asks for", label)
		}
	}
	return values, nil
}
