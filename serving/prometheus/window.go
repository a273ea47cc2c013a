// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
)

// windowOf returns the longest range over which an expression looks back: that of a
// range selector or of a subquery. An expression that cannot be parsed here is the
// server's to judge, which may speak a larger language; it counts as instantaneous.
func windowOf(expression string) time.Duration {
	parsed, err := promql.Parse(expression)
	if err != nil {
		return 0
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
	return window
}
