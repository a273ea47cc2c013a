// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"slices"
	"strings"

	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Difference is where two expressions differ.
type Difference struct {
	// Regexps says that regular expressions of matchers differ.
	Regexps bool
	// Others says that anything else does.
	Others bool
}

// Compare says where two expressions differ: of one template with two values it tells
// whether the template takes the value for a regular expression. An error is that of the
// parser, for either.
func Compare(one, two string) (Difference, error) {
	first, err := Parse(one)
	if err != nil {
		return Difference{}, err
	}
	second, err := Parse(two)
	if err != nil {
		return Difference{}, err
	}
	regexps := cutRegexps(first)
	return Difference{
		Regexps: !slices.Equal(regexps, cutRegexps(second)),
		Others:  first.String() != second.String(),
	}, nil
}

// InRegexps says whether a text is part of a regular expression of a matcher. An error is
// the parser's.
func InRegexps(expression, text string) (bool, error) {
	e, err := Parse(expression)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(cutRegexps(e), func(r string) bool { return strings.Contains(r, text) }), nil
}

// cutRegexps takes the regular expressions out of an expression's matchers, and returns
// them in their order.
func cutRegexps(e parser.Expr) []string {
	var cut []string
	for _, s := range selectors(e) {
		for i, m := range s.LabelMatchers {
			if m.Type == promlabels.MatchRegexp || m.Type == promlabels.MatchNotRegexp {
				cut = append(cut, m.Value)
				s.LabelMatchers[i] = &promlabels.Matcher{Type: m.Type, Name: m.Name}
			}
		}
	}
	return cut
}
