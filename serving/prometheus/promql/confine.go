// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"errors"
	"fmt"
	"slices"

	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// maxQuote limits the bytes of a query that an error quotes.
const maxQuote = 200

// Confine returns the expression with a matcher for one value of a label in every selector.
// Other matchers on that label are removed if they match the value; if they do not, that is an
// error, since the result would silently be empty. Relabeling functions do not matter: they
// change results, not what is selected. The expression is modified.
func Confine(e parser.Expr, label, value string) (string, error) {
	if value == "" {
		return "", errors.New("confining a query to an empty value")
	}
	enforced := promlabels.MustNewMatcher(promlabels.MatchEqual, label, value)
	if err := walk(e, func(n parser.Node) error {
		switch n := n.(type) {
		case *parser.Call:
			// It reads series that no selector names, or finds them by other labels than
			// the enforced one.
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
	// Check the text itself, since that is what the server evaluates.
	if err := checkConfined(confined, label, value); err != nil {
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
		if !matches(m, enforced.Value) {
			return fmt.Errorf("%s selects another namespace than %q, to which this query is confined: leave the matcher out", text.Truncate(m.String(), maxQuote), enforced.Value)
		}
	}
	kept = append(kept, enforced)
	s.LabelMatchers = kept
	return nil
}

// checkConfined returns an error unless every selector of the expression has the matcher.
func checkConfined(expression, label, value string) error {
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
			return fmt.Errorf("the query could not be confined to %s=%q at %s", label, value, text.Truncate(s.String(), maxQuote))
		}
		return nil
	})
}

// walk is parser.Inspect, but returns the first error.
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
