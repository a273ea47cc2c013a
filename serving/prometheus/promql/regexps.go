// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// maxInstructions limits the instructions of a query's compiled regular expressions, in addition to one for each of its
// bytes: x{1000} has a thousand.
const maxInstructions = 10_000

// unmask puts the regular expressions that maskRegexps has taken out into the matchers of an expression. They
// are not compiled: see matches.
func unmask(e parser.Expr, patterns []string) error {
	all := selectors(e)
	slices.SortFunc(all, func(a, b *parser.VectorSelector) int { return cmp.Compare(a.PosRange.Start, b.PosRange.Start) })
	for _, s := range all {
		for i, m := range s.LabelMatchers {
			if (m.Type == promlabels.MatchRegexp || m.Type == promlabels.MatchNotRegexp) && len(patterns) > 0 {
				s.LabelMatchers[i], patterns = &promlabels.Matcher{Type: m.Type, Name: m.Name, Value: patterns[0]}, patterns[1:]
			}
		}
	}
	if len(patterns) > 0 {
		return fmt.Errorf("the regular expression %q belongs to no matcher", text.Truncate(patterns[0], maxQuote))
	}
	return nil
}

// matches reports whether a matcher of a parsed expression matches a value.
func matches(m *promlabels.Matcher, value string) bool {
	if m.Type == promlabels.MatchEqual || m.Type == promlabels.MatchNotEqual {
		return m.Matches(value)
	}
	re, err := regexp.Compile("(?s)" + m.Value)
	if err != nil {
		return false
	}
	re.Longest()
	return v1alpha1.MatchesWhole(re, value) == (m.Type == promlabels.MatchRegexp)
}
