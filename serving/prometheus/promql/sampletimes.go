// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"slices"

	"github.com/prometheus/prometheus/promql/parser"
)

// SampleTimeLabel marks the series of an expression with sample times whose values are times.
const SampleTimeLabel = "metricsbackend_sample_time"

// maxWithSampleTimes limits the bytes of an expression with sample times: VictoriaMetrics accepts 16 KiB by
// default.
const maxWithSampleTimes = 16 << 10

// WithSampleTimes returns an expression whose result has, beside that of the given one, a series with
// SampleTimeLabel for each of its series. Their values are the Unix times, in seconds, of the newest
// samples that the value is computed from; of several series that of the oldest. There is none for a value
// that is computed of series without a sample that Prometheus still looks at: these have ended, or have not
// been scraped for 5 minutes. ok is false if the times cannot be known of the expression.
func WithSampleTimes(expression string) (with string, ok bool) {
	e, err := Parse(expression)
	if err != nil || e.Type() != parser.ValueTypeVector {
		return "", false
	}
	times := sampleTimes(e)
	if times == nil {
		return "", false
	}
	with = "(" + e.String() + ") or label_replace(" + times.String() + `, "` + SampleTimeLabel + `", "1", "", "")`
	return with, len(with) <= maxWithSampleTimes
}

// sampleTimes returns an expression for the times of the samples of an instant or range vector, with the labels
// of its values but the name; nil if they are not known.
func sampleTimes(e parser.Expr) parser.Expr {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return sampleTimes(e.Expr)
	case *parser.UnaryExpr:
		return sampleTimes(e.Expr)
	case *parser.MatrixSelector:
		return sampleTimes(e.VectorSelector)
	case *parser.VectorSelector:
		if fixedName(e.LabelMatchers) == "" {
			return nil // timestamp fails if two series differ only in their name
		}
		return call("timestamp", e)
	case *parser.Call:
		return sampleTimesOfCall(e)
	case *parser.AggregateExpr:
		return sampleTimesOfAggregate(e)
	case *parser.BinaryExpr:
		return sampleTimesOfBinary(e)
	}
	return nil
}

func sampleTimesOfCall(e *parser.Call) parser.Expr {
	subject, known := seriesFunctions[e.Func.Name]
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
		if i != subject && !readsNothing(arg) {
			return nil
		}
	}
	times := sampleTimes(args[subject])
	switch {
	case times == nil:
		return nil
	case e.Func.Name == "label_replace" || e.Func.Name == "label_join":
		args[subject] = times
		return call(e.Func.Name, args...)
	case e.Func.Name == "histogram_quantile" || e.Func.Name == "histogram_fraction":
		return minimum(times, []string{"le"}, true)
	}
	return times
}

func sampleTimesOfAggregate(e *parser.AggregateExpr) parser.Expr {
	times := sampleTimes(e.Expr)
	switch {
	case times == nil || e.Param != nil && !readsNothing(e.Param) || e.Op == parser.COUNT_VALUES:
		return nil
	case e.Op == parser.TOPK || e.Op == parser.BOTTOMK || e.Op == parser.LIMITK || e.Op == parser.LIMIT_RATIO:
		return times
	}
	return minimum(times, e.Grouping, e.Without)
}

func sampleTimesOfBinary(e *parser.BinaryExpr) parser.Expr {
	switch {
	case readsNothing(e.RHS) && e.RHS.Type() == parser.ValueTypeScalar:
		return sampleTimes(e.LHS)
	case readsNothing(e.LHS) && e.LHS.Type() == parser.ValueTypeScalar:
		return sampleTimes(e.RHS)
	case e.VectorMatching == nil: // a scalar of series
		return nil
	case e.Op == parser.LAND || e.Op == parser.LUNLESS:
		return sampleTimes(e.LHS)
	}
	left, right, m := sampleTimes(e.LHS), sampleTimes(e.RHS), e.VectorMatching
	switch {
	case left == nil || right == nil:
		return nil
	case e.Op == parser.LOR:
	case m.Card != parser.CardOneToOne || m.FillValues.LHS != nil || m.FillValues.RHS != nil:
		return nil
	case m.On || len(m.MatchingLabels) > 0:
		left, right = minimum(left, m.MatchingLabels, !m.On), minimum(right, m.MatchingLabels, !m.On)
	}
	return older(left, right)
}

// older returns the smaller value where both sides have one, and else that of either.
func older(left, right parser.Expr) parser.Expr {
	if left.String() == right.String() {
		return left
	}
	binary := func(op parser.ItemType, l, r parser.Expr, card parser.VectorMatchCardinality) parser.Expr {
		return &parser.ParenExpr{Expr: &parser.BinaryExpr{Op: op, LHS: l, RHS: r, VectorMatching: &parser.VectorMatching{Card: card}}}
	}
	smaller := binary(parser.LTE, left, right, parser.CardOneToOne)
	return binary(parser.LOR, binary(parser.LOR, smaller, right, parser.CardManyToMany), left, parser.CardManyToMany)
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
