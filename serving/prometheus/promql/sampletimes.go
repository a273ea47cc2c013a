// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

const (
	// SampleTimeLabel marks the series of an expression with sample times whose values are times.
	SampleTimeLabel = "metricsbackend_sample_time"
	// sideLabel tells the two sides of an operator apart.
	sideLabel = "metricsbackend_side"
	// maxWithSampleTimes limits the bytes of an expression with sample times.
	maxWithSampleTimes = 64 << 10
	// rangeSteps is how often the time of a series that has ended is looked up in its range, which usually has
	// at least four scrapes.
	rangeSteps = 10
)

// WithSampleTimes returns an expression whose result has, beside that of the given one, a series with
// SampleTimeLabel for each of its series. Their values are the Unix times, in seconds, of the newest
// samples that the value is computed from; of several series that of the oldest. A series that has ended, as that
// of a target whose scrape failed, may have samples in a range still: ended says that these count, too, which costs
// a server several times as much. ok is false if the times cannot be known of the expression.
func WithSampleTimes(expression string, ended bool) (with string, ok bool) {
	e, err := Parse(expression)
	if err != nil || e.Type() != parser.ValueTypeVector {
		return "", false
	}
	times := timesExpression{ended}.expression(e)
	if times == nil {
		return "", false
	}
	with = "(" + e.String() + ") or " + addLabel(times, SampleTimeLabel, "1").String()
	return with, len(with) <= maxWithSampleTimes
}

// selectsSeries reports whether an aggregation yields some of its series as they are.
func selectsSeries(op parser.ItemType) bool {
	return op == parser.TOPK || op == parser.BOTTOMK || op == parser.LIMITK || op == parser.LIMIT_RATIO
}

// timesExpression makes an expression for the times of the samples of a vector, with the labels of its values but
// the name; nil if they are not known.
type timesExpression struct {
	// ended counts series that have ended.
	ended bool
}

func (t timesExpression) expression(e parser.Expr) parser.Expr {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return t.expression(e.Expr)
	case *parser.UnaryExpr:
		return t.expression(e.Expr)
	case *parser.MatrixSelector:
		return t.ofRange(e)
	case *parser.VectorSelector:
		if fixedName(e.LabelMatchers) == "" || e.Anchored || e.Smoothed {
			return nil // timestamp fails if two series differ only in their name
		}
		return call("timestamp", e)
	case *parser.Call:
		return t.ofCall(e)
	case *parser.AggregateExpr:
		return t.ofAggregate(e)
	case *parser.BinaryExpr:
		return t.ofBinary(e)
	}
	return nil
}

func (t timesExpression) ofRange(e *parser.MatrixSelector) parser.Expr {
	now := t.expression(e.VectorSelector)
	if now == nil || !t.ended {
		return now
	}
	if e.Range <= 0 {
		return nil
	}
	// A series that has ended has no timestamp any more: then it is the last one that it had.
	step := max(e.Range/rangeSteps, time.Second).Truncate(time.Second)
	before := call("max_over_time", &parser.SubqueryExpr{Expr: now, Range: e.Range, Step: step})
	return setOperation(parser.LOR, now, before)
}

func (t timesExpression) ofCall(e *parser.Call) parser.Expr {
	subject, known := seriesFunctions[e.Func.Name]
	relabels := e.Func.Name == "label_replace" || e.Func.Name == "label_join"
	switch e.Func.Name {
	case "vector":
		if readsNothing(e.Args[0]) {
			return call("vector", call("time"))
		}
		return nil
	case "label_replace", "label_join", "sort", "sort_desc":
		known = true
	}
	if !known {
		return nil
	}
	args := slices.Clone(e.Args)
	for i, arg := range args {
		text, _ := arg.(*parser.StringLiteral)
		if i != subject && !readsNothing(arg) || relabels && text != nil && text.Val == model.MetricNameLabel {
			return nil // timestamp has removed the name
		}
	}
	times := t.expression(args[subject])
	switch {
	case times == nil:
		return nil
	case relabels:
		args[subject] = times
		return call(e.Func.Name, args...)
	case e.Func.Name == "histogram_quantile" || e.Func.Name == "histogram_fraction":
		return minimum(times, []string{"le"}, true)
	}
	return times
}

func (t timesExpression) ofAggregate(e *parser.AggregateExpr) parser.Expr {
	times := t.expression(e.Expr)
	switch {
	case times == nil || e.Param != nil && !readsNothing(e.Param) || e.Op == parser.COUNT_VALUES:
		return nil
	case selectsSeries(e.Op):
		return restrict(times, e)
	}
	return minimum(times, e.Grouping, e.Without)
}

func (t timesExpression) ofBinary(e *parser.BinaryExpr) parser.Expr {
	times, m := t.ofOperands(e), e.VectorMatching
	otherLabels := e.Op == parser.LOR && (m.On || len(m.MatchingLabels) > 0)
	if times != nil && (otherLabels || e.Op.IsComparisonOperator() && !e.ReturnBool || e.Op == parser.LAND || e.Op == parser.LUNLESS) {
		return restrict(times, e)
	}
	return times
}

func (t timesExpression) ofOperands(e *parser.BinaryExpr) parser.Expr {
	switch {
	case readsNothing(e.RHS) && e.RHS.Type() == parser.ValueTypeScalar:
		return t.expression(e.LHS)
	case readsNothing(e.LHS) && e.LHS.Type() == parser.ValueTypeScalar:
		return t.expression(e.RHS)
	case e.VectorMatching == nil: // a scalar of series
		return nil
	case e.Op == parser.LAND || e.Op == parser.LUNLESS:
		return t.expression(e.LHS)
	}
	left, right, m := t.expression(e.LHS), t.expression(e.RHS), e.VectorMatching
	switch {
	case left == nil || right == nil:
		return nil
	case e.Op == parser.LOR:
		return setOperation(parser.LOR, left, right)
	case m.Card != parser.CardOneToOne || m.FillValues.LHS != nil || m.FillValues.RHS != nil:
		return nil
	case m.On || len(m.MatchingLabels) > 0:
		left, right = minimum(left, m.MatchingLabels, !m.On), minimum(right, m.MatchingLabels, !m.On)
	}
	return minimum(setOperation(parser.LOR, addLabel(left, sideLabel, "left"), addLabel(right, sideLabel, "right")), []string{sideLabel}, true)
}

// restrict returns the times of the series that an expression yields, which drops others by their values.
func restrict(times, yields parser.Expr) parser.Expr { return setOperation(parser.LAND, times, yields) }

// setOperation returns a set operation on vectors.
func setOperation(op parser.ItemType, left, right parser.Expr) parser.Expr {
	paren := func(e parser.Expr) parser.Expr { return &parser.ParenExpr{Expr: e} }
	return &parser.BinaryExpr{Op: op, LHS: paren(left), RHS: paren(right), VectorMatching: &parser.VectorMatching{Card: parser.CardManyToMany}}
}

// addLabel adds a label to the series of a vector.
func addLabel(of parser.Expr, label, value string) parser.Expr {
	text := func(s string) parser.Expr { return &parser.StringLiteral{Val: s} }
	return call("label_replace", of, text(label), text(value), text(""), text(""))
}

// minimum returns the smallest value by, or without, labels.
func minimum(of parser.Expr, labels []string, without bool) parser.Expr {
	return &parser.AggregateExpr{Op: parser.MIN, Expr: of, Grouping: labels, Without: without}
}

func call(function string, args ...parser.Expr) parser.Expr {
	return &parser.Call{Func: parser.Functions[function], Args: args}
}

// readsNothing reports whether an expression reads no series.
func readsNothing(e parser.Expr) bool { return len(selectors(e)) == 0 }
