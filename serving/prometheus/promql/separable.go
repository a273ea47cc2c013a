// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"slices"

	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// AnyValue is the regular expression for a label in a query for all of its values.
const AnyValue = ".+"

// Rendering holds the expressions that one template yields for one value of a label, for two,
// and for all (Set, or AnyValue in a regular expression).
type Rendering struct {
	Label         string
	First, Second string
	One, Two, All string
}

// Separable reports whether the expression for all values of the label provably yields for each
// value exactly what the expression for that value yields, and fails only if that fails. Then
// one query can serve requests for any of the values. The proof has two parts: the expressions
// differ only in matchers on the label; and each subexpression keeps the label and combines
// only series with the same value of it.
func Separable(r Rendering) bool {
	e, err := parseAll(r.One, r.Two, r.All)
	if err != nil {
		return false
	}
	marked, same := r.compare(e[0], e[1], e[2])
	s := separator{label: r.Label, marked: marked}
	return same && s.analyze(e[2]) == separate
}

// compare returns the selectors of all that depend on the value, and whether the expressions are
// otherwise the same. It modifies them.
func (r Rendering) compare(one, two, all parser.Expr) (map[*parser.VectorSelector]bool, bool) {
	a, b, c := selectors(one), selectors(two), selectors(all)
	if len(a) != len(b) || len(a) != len(c) {
		return nil, false
	}
	marked := map[*parser.VectorSelector]bool{}
	for i := range a {
		if len(a[i].LabelMatchers) != len(b[i].LabelMatchers) || len(a[i].LabelMatchers) != len(c[i].LabelMatchers) {
			return nil, false
		}
		for j := range a[i].LabelMatchers {
			if !r.dependsOnValue(a[i].LabelMatchers[j], b[i].LabelMatchers[j], c[i].LabelMatchers[j]) {
				continue
			}
			marked[c[i]] = true
			same := promlabels.MustNewMatcher(promlabels.MatchNotEqual, r.Label, "")
			a[i].LabelMatchers[j], b[i].LabelMatchers[j], c[i].LabelMatchers[j] = same, same, same
		}
	}
	text := all.String()
	return marked, one.String() == text && two.String() == text
}

// dependsOnValue reports whether matchers at one place are those for the value of the label.
func (r Rendering) dependsOnValue(one, two, all *promlabels.Matcher) bool {
	if one.Name != r.Label || two.Name != r.Label || all.Name != r.Label {
		return false
	}
	switch {
	case one.Value != r.First || one.Type != promlabels.MatchEqual && one.Type != promlabels.MatchRegexp:
		return false
	case two.Value != r.First+"|"+r.Second || two.Type != promlabels.MatchRegexp:
		return false
	}
	return all.Type == promlabels.MatchNotEqual && all.Value == "" ||
		all.Type == promlabels.MatchRegexp && all.Value == AnyValue
}

func selectors(e parser.Expr) []*parser.VectorSelector {
	var found []*parser.VectorSelector
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			found = append(found, s)
		}
		return nil
	})
	return found
}

// dependence is how the result of a subexpression depends on the requested values.
type dependence int

const (
	// mixed results are not known to be either of the others.
	mixed dependence = iota
	// constant results do not depend on the values.
	constant
	// separate results have the label, and are computed from series with the same value of it
	// and from constants.
	separate
	// regrouped results are separate, as analyze has added the label to a grouping. Those of the
	// original expression do not have it.
	regrouped
)

type separator struct {
	label  string
	marked map[*parser.VectorSelector]bool
	// regroup makes analyze add the label to groupings that lose it.
	regroup bool
}

// seriesFunctions maps functions that work on each series, or on each group of all labels but le,
// to the index of their vector. Functions that create, sort or relabel series are missing.
var seriesFunctions = map[string]int{
	"abs": 0, "acos": 0, "acosh": 0, "asin": 0, "asinh": 0, "atan": 0, "atanh": 0,
	"avg_over_time": 0, "ceil": 0, "changes": 0, "clamp": 0, "clamp_max": 0, "clamp_min": 0,
	"cos": 0, "cosh": 0, "count_over_time": 0, "deg": 0, "delta": 0, "deriv": 0,
	"double_exponential_smoothing": 0, "exp": 0, "first_over_time": 0, "floor": 0,
	"histogram_avg": 0, "histogram_count": 0, "histogram_fraction": 2, "histogram_quantile": 1,
	"histogram_stddev": 0, "histogram_stdvar": 0, "histogram_sum": 0,
	"idelta": 0, "increase": 0, "irate": 0, "last_over_time": 0, "ln": 0, "log10": 0, "log2": 0,
	"mad_over_time": 0, "max_over_time": 0, "min_over_time": 0, "predict_linear": 0,
	"present_over_time": 0, "quantile_over_time": 1, "rad": 0, "rate": 0, "resets": 0, "round": 0,
	"sgn": 0, "sin": 0, "sinh": 0, "sqrt": 0, "stddev_over_time": 0, "stdvar_over_time": 0,
	"sum_over_time": 0, "tan": 0, "tanh": 0, "timestamp": 0,
}

func (s separator) analyze(e parser.Expr) dependence {
	switch e := e.(type) {
	case *parser.NumberLiteral, *parser.StringLiteral:
		return constant
	case *parser.ParenExpr:
		return s.analyze(e.Expr)
	case *parser.UnaryExpr:
		return s.analyze(e.Expr)
	case *parser.MatrixSelector:
		return s.analyze(e.VectorSelector)
	case *parser.SubqueryExpr:
		return s.analyze(e.Expr)
	case *parser.VectorSelector:
		switch {
		case !s.marked[e]:
			return constant
		// Functions that drop the name fail if two series differ only in it.
		case fixedName(e.LabelMatchers) == "":
			return mixed
		}
		return separate
	case *parser.Call:
		return s.call(e)
	case *parser.AggregateExpr:
		return s.aggregate(e)
	case *parser.BinaryExpr:
		return s.binary(e)
	}
	return mixed
}

func (s separator) call(e *parser.Call) dependence {
	subject, maps := seriesFunctions[e.Func.Name]
	result := constant
	for i, arg := range e.Args {
		switch of := s.analyze(arg); of {
		case mixed:
			return mixed
		case separate, regrouped:
			if !maps || i != subject {
				return mixed
			}
			result = of
		}
	}
	if result != constant && s.label == "le" {
		return mixed // the histogram functions drop it
	}
	return result
}

func (s separator) aggregate(e *parser.AggregateExpr) dependence {
	if e.Param != nil && s.analyze(e.Param) != constant {
		return mixed
	}
	inner := s.analyze(e.Expr)
	if inner == mixed || inner == constant {
		return inner
	}
	switch e.Op {
	case parser.SUM, parser.AVG, parser.MIN, parser.MAX, parser.COUNT, parser.GROUP,
		parser.STDDEV, parser.STDVAR, parser.QUANTILE:
	default:
		return mixed
	}
	switch lost := slices.Contains(e.Grouping, s.label) == e.Without; {
	case !lost:
		return inner
	case !s.regroup:
		return mixed
	case e.Without:
		e.Grouping = slices.DeleteFunc(e.Grouping, func(label string) bool { return label == s.label })
	default:
		e.Grouping = append(e.Grouping, s.label)
	}
	return regrouped
}

func (s separator) binary(e *parser.BinaryExpr) dependence {
	left, right := s.analyze(e.LHS), s.analyze(e.RHS)
	switch {
	case left == mixed || right == mixed:
		return mixed
	case left == constant && right == constant:
		return constant
	case e.VectorMatching == nil: // with a scalar
		return max(left, right)
	}
	// With one-to-one matching on all labels both sides have the same value of the label, and
	// no other series can make the match ambiguous.
	plain := !e.VectorMatching.On && len(e.VectorMatching.MatchingLabels) == 0 && len(e.VectorMatching.Include) == 0 &&
		e.VectorMatching.FillValues.LHS == nil && e.VectorMatching.FillValues.RHS == nil
	if left == right {
		if plain || s.matchedOnGrouping(e, left) {
			return left
		}
		return mixed
	}
	if right == constant && (e.Op == parser.LAND || e.Op == parser.LUNLESS) && (left == separate || s.matchedOnOthers(e)) {
		return left // drops series by a constant
	}
	return mixed
}

// matchedOnOthers reports whether the label does not decide what matches.
func (s separator) matchedOnOthers(e *parser.BinaryExpr) bool {
	return e.VectorMatching.On && !slices.Contains(e.VectorMatching.MatchingLabels, s.label)
}

// matchedOnGrouping reports whether both sides are aggregated by labels, including the label, and
// matched on all of them. It adds the label where both sides have been regrouped by it.
func (s separator) matchedOnGrouping(e *parser.BinaryExpr, sides dependence) bool {
	m := e.VectorMatching
	if sides == regrouped && s.matchedOnOthers(e) {
		m.MatchingLabels = append(m.MatchingLabels, s.label)
	}
	if !m.On || m.Card != parser.CardOneToOne || m.FillValues.LHS != nil || m.FillValues.RHS != nil ||
		!slices.Contains(m.MatchingLabels, s.label) {
		return false
	}
	for _, side := range []parser.Expr{e.LHS, e.RHS} {
		a, ok := unwrap(side).(*parser.AggregateExpr)
		if !ok || a.Without {
			return false
		}
		for _, label := range a.Grouping {
			if !slices.Contains(m.MatchingLabels, label) {
				return false
			}
		}
	}
	return true
}

func unwrap(e parser.Expr) parser.Expr {
	for {
		p, ok := e.(*parser.ParenExpr)
		if !ok {
			return e
		}
		e = p.Expr
	}
}
