// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"slices"

	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Anything is the regular expression that stands for the values of a label when a
// query is asked for all.
const Anything = ".+"

// Rendering are the expressions that one template makes for one value of a label, for
// two, and for all (Set, or Anything in a regular expression).
type Rendering struct {
	Label         string
	First, Second string
	One, Two, All string
}

// Separable proves that the expression for all values of the label yields for each
// value what the expression for that value yields, no more and no less, and fails only
// where that fails. Then one query serves all who ask for some of the values. The
// proof needs two things. The expressions are the same but for matchers on the label,
// so nothing else knows which values are asked for. And each part keeps the label, and
// combines only what has the same value of it.
func Separable(r Rendering) bool {
	one, err := Parse(r.One)
	if err != nil {
		return false
	}
	two, err := Parse(r.Two)
	if err != nil {
		return false
	}
	all, err := Parse(r.All)
	if err != nil {
		return false
	}
	marked, same := r.compare(one, two, all)
	if !same {
		return false
	}
	s := separation{label: r.Label, marked: marked}
	return s.judge(all) == separate
}

// compare returns the selectors of all that are made of the values that are asked for,
// and whether the expressions are the same but for that. It alters them.
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
			if !r.asks(a[i].LabelMatchers[j], b[i].LabelMatchers[j], c[i].LabelMatchers[j]) {
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

// asks says whether matchers are those on the label that say which values are asked for.
func (r Rendering) asks(one, two, all *promlabels.Matcher) bool {
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
		all.Type == promlabels.MatchRegexp && all.Value == Anything
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

// judgement of a part of an expression.
type judgement int

const (
	// mixed: nothing is known.
	mixed judgement = iota
	// constant: it does not depend on the values that are asked for.
	constant
	// separate: each series of its result has the label, and comes of series with the
	// same value of it and of constants.
	separate
)

type separation struct {
	label  string
	marked map[*parser.VectorSelector]bool
}

// mapping are the functions whose first or only vector is mapped series by series, or
// group by group of all labels but le. Those that make up series, or order or label
// them anew, are not among them.
var mapping = map[string]int{
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

func (s separation) judge(e parser.Expr) judgement {
	switch e := e.(type) {
	case *parser.NumberLiteral, *parser.StringLiteral:
		return constant
	case *parser.ParenExpr:
		return s.judge(e.Expr)
	case *parser.UnaryExpr:
		return s.judge(e.Expr)
	case *parser.MatrixSelector:
		return s.judge(e.VectorSelector)
	case *parser.SubqueryExpr:
		return s.judge(e.Expr)
	case *parser.VectorSelector:
		switch {
		case !s.marked[e]:
			return constant
		// Functions that drop the name fail where two metrics differ in nothing else.
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

func (s separation) call(e *parser.Call) judgement {
	subject, maps := mapping[e.Func.Name]
	result := constant
	for i, arg := range e.Args {
		switch s.judge(arg) {
		case mixed:
			return mixed
		case separate:
			if !maps || i != subject {
				return mixed
			}
			result = separate
		}
	}
	if result == separate && s.label == "le" {
		return mixed // the histogram functions drop it
	}
	return result
}

func (s separation) aggregate(e *parser.AggregateExpr) judgement {
	if e.Param != nil && s.judge(e.Param) != constant {
		return mixed
	}
	inner := s.judge(e.Expr)
	if inner != separate {
		return inner
	}
	switch e.Op {
	case parser.SUM, parser.AVG, parser.MIN, parser.MAX, parser.COUNT, parser.GROUP,
		parser.STDDEV, parser.STDVAR, parser.QUANTILE:
	default:
		return mixed
	}
	if slices.Contains(e.Grouping, s.label) == e.Without {
		return mixed // the label is lost
	}
	return separate
}

func (s separation) binary(e *parser.BinaryExpr) judgement {
	left, right := s.judge(e.LHS), s.judge(e.RHS)
	switch {
	case left == mixed || right == mixed:
		return mixed
	case left == constant && right == constant:
		return constant
	case e.VectorMatching == nil: // with a scalar
		return separate
	}
	// The match must be one to one by all labels: then pairs have the same value of the
	// label, and no other series can make the match fail as ambiguous.
	plain := !e.VectorMatching.On && len(e.VectorMatching.MatchingLabels) == 0 && len(e.VectorMatching.Include) == 0 &&
		e.VectorMatching.FillValues.LHS == nil && e.VectorMatching.FillValues.RHS == nil
	if left == separate && right == separate {
		if plain || s.bySame(e) {
			return separate
		}
		return mixed
	}
	if left == separate && right == constant && (e.Op == parser.LAND || e.Op == parser.LUNLESS) {
		return separate // drops series by what is the same for everyone
	}
	return mixed
}

// bySame says whether both sides are aggregated by labels, with the label among them,
// and matched on all of those.
func (s separation) bySame(e *parser.BinaryExpr) bool {
	m := e.VectorMatching
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
