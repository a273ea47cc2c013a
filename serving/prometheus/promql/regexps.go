// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"slices"

	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Difference is where two expressions differ.
type Difference struct {
	// Regexps says that regular expressions differ, of matchers or of label_replace.
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

// cutRegexps takes the regular expressions out of an expression, and returns them in their
// order.
func cutRegexps(e parser.Expr) []string {
	var cut []string
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			for i, m := range n.LabelMatchers {
				if m.Type == promlabels.MatchRegexp || m.Type == promlabels.MatchNotRegexp {
					cut = append(cut, m.Value)
					n.LabelMatchers[i] = &promlabels.Matcher{Type: m.Type, Name: m.Name}
				}
			}
		case *parser.Call:
			if text := replaced(n); text != nil {
				cut = append(cut, text.Val)
				text.Val = ""
			}
		}
		return nil
	})
	return cut
}

// replaced is the regular expression of a label_replace, its last argument; nil of other
// functions, none of which has any.
func replaced(c *parser.Call) *parser.StringLiteral {
	if c.Func.Name != "label_replace" || len(c.Args) != 5 {
		return nil
	}
	text, _ := c.Args[4].(*parser.StringLiteral)
	return text
}
