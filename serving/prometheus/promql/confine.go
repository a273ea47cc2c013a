// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"errors"
	"fmt"
	"slices"

	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Confine returns an expression of which every selector selects series with one value
// of a label only, wherever it stands: in ranges, subqueries, functions, either side
// of an operator, with an offset or @, or without a metric's name. Matchers on that
// label which allow the value add nothing and are left out; one that does not allow it
// is an error, as the expression means to read what it may not, and would silently
// yield nothing. What functions do to labels of results changes nothing of what is
// read.
func Confine(expression, label, value string) (string, error) {
	if value == "" {
		return "", errors.New("confining a query to an empty value")
	}
	e, err := Parse(expression)
	if err != nil {
		return "", err
	}
	enforced, err := promlabels.NewMatcher(promlabels.MatchEqual, label, value)
	if err != nil {
		return "", fmt.Errorf("confining a query: %w", err)
	}
	if err := walk(e, func(n parser.Node) error {
		switch n := n.(type) {
		case *parser.Call:
			// Without a second argument it reads series that no selector names, and with
			// one it finds them by other labels than the enforced one.
			if n.Func.Name == "info" {
				return errors.New("info() cannot be used: it reads series that cannot be confined to a namespace; join with group_left instead")
			}
		case *parser.VectorSelector:
			return confine(n, enforced)
		}
		return nil
	}); err != nil {
		return "", err
	}
	confined := e.String()
	// What is printed is what is asked, so that is what is looked at last.
	if err := confinedBy(confined, label, value); err != nil {
		return "", err
	}
	return confined, nil
}

func confine(s *parser.VectorSelector, enforced *promlabels.Matcher) error {
	kept := make([]*promlabels.Matcher, 0, len(s.LabelMatchers)+1)
	for _, m := range s.LabelMatchers {
		if m.Name != enforced.Name {
			kept = append(kept, m)
			continue
		}
		if !m.Matches(enforced.Value) {
			return fmt.Errorf("%s selects another namespace than %q, to which this query is confined: leave the matcher out", m, enforced.Value)
		}
	}
	kept = append(kept, enforced)
	s.LabelMatchers = kept
	return nil
}

// confinedBy says where an expression reads more than it may.
func confinedBy(expression, label, value string) error {
	e, err := Parse(expression)
	if err != nil {
		return fmt.Errorf("the confined query: %w", err)
	}
	return walk(e, func(n parser.Node) error {
		s, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		on := slices.DeleteFunc(slices.Clone(s.LabelMatchers), func(m *promlabels.Matcher) bool { return m.Name != label })
		if len(on) != 1 || on[0].Type != promlabels.MatchEqual || on[0].Value != value {
			return fmt.Errorf("the query could not be confined to %s=%q at %s", label, value, s)
		}
		return nil
	})
}

// walk is parser.Inspect with the first error returned.
func walk(e parser.Expr, visit func(parser.Node) error) error {
	var failure error
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if n == nil || failure != nil {
			return failure
		}
		failure = visit(n)
		return failure
	})
	return failure
}
