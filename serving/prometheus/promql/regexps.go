// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

const (
	// maxInstructions limits the instructions of a query's compiled regular expressions, in
	// addition to one for each of its bytes: x{1000} has a thousand.
	maxInstructions = 10_000
	// maxWideClasses limits what wideClass matches. With the flag i, with which one takes up to 6 ms
	// to parse, there may be two.
	maxWideClasses = 30
)

// escapesAndClasses matches quoted text, escapes and classes in brackets: a hyphen elsewhere is no range.
var escapesAndClasses = regexp.MustCompile(`(?s)\\Q.*?(?:\\E|$)|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*`)

// wideClass matches what syntax.Parse needs many runes for: Unicode classes, and ranges that may end
// beyond ASCII.
var wideClass = regexp.MustCompile(`\\[pP]|-(?:\\[x0-7]|[^\x00-\x7f])`)

// foldsCase matches the flag that ignores case.
var foldsCase = regexp.MustCompile(`\(\?[a-zA-Z]*i`)

// regexpSize is the size of the regular expressions of a query.
type regexpSize struct{ instructions, limit, wideClasses int }

// add returns an error if the regular expressions are too large with this one, and otherwise whether
// it matches the empty value.
func (s *regexpSize) add(pattern string) (empty bool, err error) {
	wide := len(wideClass.FindAllStringIndex(strings.Join(escapesAndClasses.FindAllString(pattern, -1), " "), maxWideClasses+1))
	if foldsCase.MatchString(pattern) {
		wide *= 15
	}
	if s.wideClasses += wide; s.wideClasses > maxWideClasses {
		return false, errors.New(`the query's regular expressions have too many Unicode classes such as \pL, or ranges beyond ASCII: use fewer, and without (?i)`)
	}
	re, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
	if err != nil {
		return false, &SyntaxError{text.Truncate(err.Error(), 300)}
	}
	size, empty := measure(re)
	if s.instructions += size; s.instructions > s.limit {
		return false, fmt.Errorf("the query's regular expressions are too large, as they compile to more than %d instructions: repeat less, such as x{10} instead of x{1000}", s.limit)
	}
	return empty, nil
}

// measure returns a bound of the instructions of a compiled regular expression, and whether it
// matches the empty value.
func measure(re *syntax.Regexp) (size int, empty bool) {
	alternate := re.Op == syntax.OpAlternate
	empty = !alternate
	for _, sub := range re.Sub {
		n, e := measure(sub)
		if size += n; e == alternate {
			empty = e
		}
	}
	if re.Op != syntax.OpConcat {
		size += 2 * len(re.Sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune), false
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL, syntax.OpNoMatch, syntax.OpWordBoundary:
		return 1, false
	case syntax.OpStar, syntax.OpQuest:
		empty = true
	case syntax.OpRepeat:
		size *= max(re.Min, re.Max, 1) // x{2,4} is xx(x(x)?)?
		empty = empty || re.Min == 0
	}
	return max(size, 1), empty
}

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
