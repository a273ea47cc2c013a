// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"slices"
	"strings"

	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Difference describes how two expressions differ.
type Difference struct {
	// Regexps is set if regular expressions differ, in matchers or label_replace.
	Regexps bool
	// Others is set if anything else differs.
	Others bool
}

// Compare returns how two expressions differ. For the results of a template with two values this
// shows whether the template uses the value as a regular expression.
func Compare(one, two string) (Difference, error) {
	e, err := parseAll(one, two)
	if err != nil {
		return Difference{}, err
	}
	return Difference{
		Regexps: !slices.Equal(removeRegexps(e[0]), removeRegexps(e[1])),
		Others:  e[0].String() != e[1].String(),
	}, nil
}

// removeRegexps removes the regular expressions from an expression and returns them in order.
func removeRegexps(e parser.Expr) []string {
	var removed []string
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			for i, m := range n.LabelMatchers {
				if m.Type == promlabels.MatchRegexp || m.Type == promlabels.MatchNotRegexp {
					removed = append(removed, m.Value)
					n.LabelMatchers[i] = &promlabels.Matcher{Type: m.Type, Name: m.Name}
				}
			}
		case *parser.Call:
			if text := labelReplaceRegexp(n); text != nil {
				removed = append(removed, text.Val)
				text.Val = ""
			}
		}
		return nil
	})
	return removed
}

// labelReplaceRegexp returns the regular expression of a label_replace; nil for other functions,
// none of which has one.
func labelReplaceRegexp(c *parser.Call) *parser.StringLiteral {
	if c.Func.Name != "label_replace" || len(c.Args) != 5 {
		return nil
	}
	text, _ := c.Args[4].(*parser.StringLiteral)
	return text
}

// Selects reports whether an expression selects the series of a name by a matcher.
func Selects(expression, name string, by Matcher) bool {
	e, err := Parse(expression)
	return err == nil && slices.ContainsFunc(selectors(e), func(s *parser.VectorSelector) bool {
		return fixedName(s.LabelMatchers) == name && slices.ContainsFunc(s.LabelMatchers, func(m *promlabels.Matcher) bool {
			return m.Name == by.Label && m.Type == by.Type && m.Value == by.Value
		})
	})
}

// Occurrence is how the selectors of an expression use a matcher.
type Occurrence int

const (
	// InAll means that each selector has the matcher.
	InAll Occurrence = iota
	// InSome means that some selectors have it.
	InSome
	// Replaced means that none has it, but some have another one on the same label.
	Replaced
	// Absent means that no selector has a matcher on the label.
	Absent
)

// FindMatchers returns the occurrence of each matcher in an expression. In one that cannot be
// parsed a matcher is InSome if its text occurs, and Replaced otherwise.
func FindMatchers(expression string, matchers []Matcher) []Occurrence {
	found := make([]Occurrence, len(matchers))
	e, err := Parse(expression)
	if err != nil {
		for i, m := range matchers {
			found[i] = Replaced
			if strings.Contains(expression, m.String()) {
				found[i] = InSome
			}
		}
		return found
	}
	all := selectors(e)
	for i, m := range matchers {
		exact, others := 0, 0
		for _, s := range all {
			has, other := false, false
			for _, each := range s.LabelMatchers {
				if each.Name == m.Label {
					same := each.Type == m.Type && each.Value == m.Value
					has, other = has || same, other || !same
				}
			}
			switch {
			case has:
				exact++
			case other:
				others++
			}
		}
		switch {
		case exact == len(all):
			found[i] = InAll
		case exact > 0:
			found[i] = InSome
		case others > 0:
			found[i] = Replaced
		default:
			found[i] = Absent
		}
	}
	return found
}
