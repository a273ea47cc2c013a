// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
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
