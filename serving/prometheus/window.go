// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// promQL parses what servers may know; what is not enabled at a server it rejects itself.
var promQL = parser.NewParser(parser.Options{
	EnableExperimentalFunctions:  true,
	ExperimentalDurationExpr:     true,
	EnableExtendedRangeSelectors: true,
	EnableBinopFillModifiers:     true,
})

// inspect returns the longest range over which an expression looks back: that of a
// range selector or of a subquery. An expression that cannot be parsed is the
// server's to judge, which may speak a larger language; it counts as instantaneous.
// One that yields neither numbers nor a number fails here, and costs no query.
func inspect(expression string) (time.Duration, *query.Failure) {
	parsed, err := promQL.ParseExpr(expression)
	if err != nil {
		return 0, nil //nolint:nilerr // see above
	}
	switch t := parsed.Type(); t {
	case parser.ValueTypeScalar, parser.ValueTypeVector:
	case parser.ValueTypeMatrix:
		return 0, failf(query.ReasonRejected, "the expression is a range of samples, not a value: take one number of it, with a function such as rate(), increase() or last_over_time()")
	default:
		return 0, failf(query.ReasonRejected, "the expression is a %s, not a number", parser.DocumentedType(t))
	}
	var window time.Duration
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.MatrixSelector:
			window = max(window, n.Range)
		case *parser.SubqueryExpr:
			window = max(window, n.Range)
		}
		return nil
	})
	return window, nil
}
