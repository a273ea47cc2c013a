// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"

	promlabels "github.com/prometheus/prometheus/model/labels"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
)

// selectsEverywhere reports whether each series selector of the expression has all matchers of
// the client's selector.
func (q *templateInput) selectsEverywhere(expression string) bool {
	return len(q.selected) == 0 ||
		!slices.ContainsFunc(promql.FindMatchers(expression, q.selected), func(o promql.Occurrence) bool { return o != promql.InAll })
}

// quotedKeys returns the keys of the client's selector in an expression that PromQL has to quote.
func (q *templateInput) quotedKeys(expression string) []string {
	var keys []string
	for _, m := range q.selected {
		if promql.LabelName(m.Label) != m.Label && strings.Contains(expression, m.Label) && !slices.Contains(keys, m.Label) {
			keys = append(keys, m.Label)
		}
	}
	return keys
}

// replacedNegation returns a negative or empty matcher of the client's selector that the
// expression has replaced. A template that uses the values of labels turns label!=prod into
// label=~"prod", which is the opposite, and would evade policies.
func (q *templateInput) replacedNegation(expression string) (promql.Matcher, bool) {
	var negative []promql.Matcher
	for _, m := range q.selected {
		if m.Type == promlabels.MatchNotEqual || m.Type == promlabels.MatchNotRegexp || m.Value == "" {
			negative = append(negative, m)
		}
	}
	if len(negative) == 0 {
		return promql.Matcher{}, false
	}
	for i, c := range promql.FindMatchers(expression, negative) {
		if c == promql.Replaced {
			return negative[i], true
		}
	}
	return promql.Matcher{}, false
}

// seriesSelector selects as PromQL does: a missing label has the empty value.
type seriesSelector struct {
	labels.Selector
	requirements labels.Requirements
	// present applies only the requirements on labels that are present: the query may have
	// aggregated the others away.
	present bool
}

// selectSeries returns nil for an empty selector.
func selectSeries(s labels.Selector, present bool) labels.Selector {
	if s == nil || s.Empty() {
		return nil
	}
	requirements, _ := s.Requirements()
	return &seriesSelector{s, requirements, present}
}

func (s *seriesSelector) Matches(l labels.Labels) bool {
	return !slices.ContainsFunc(s.requirements, func(r labels.Requirement) bool {
		value, present := l.Lookup(r.Key())
		switch operator := r.Operator(); {
		case s.present && !present:
			return false
		case operator == selection.Exists:
			return value == ""
		case operator == selection.DoesNotExist:
			return present // even if it is empty: policies count on that
		}
		return !r.Matches(labels.Set{r.Key(): value})
	})
}

func (s *seriesSelector) DeepCopySelector() labels.Selector {
	return selectSeries(s.Selector.DeepCopySelector(), s.present)
}

// valuesByLabel returns the values of each label for the template. If several requirements are on
// one label, they are the values that meet all of them: with those of one alone the template
// would select what another requirement, and maybe a policy, excludes. A selector that
// contradicts itself is an error, since a template need not use the label.
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
			return nil, badRequest("the selector (an autoscaler's metric.selector) contradicts itself: no value of the label %q meets all that it asks for", label)
		}
	}
	return values, nil
}
