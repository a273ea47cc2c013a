// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package promql builds and judges PromQL: matchers out of Kubernetes selectors, a
// matcher enforced on everything that an expression reads, and whether an expression
// can be asked for all objects at once. It parses and prints with Prometheus' own
// parser.
package promql

import (
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// MaxExpression is the most bytes of an expression.
const MaxExpression = 1 << 20

// maxNesting is the most operators and brackets.
const maxNesting = 1000

// all parses what servers may know; what is not enabled at a server it rejects itself.
var all = parser.NewParser(parser.Options{
	EnableExperimentalFunctions:  true,
	ExperimentalDurationExpr:     true,
	EnableExtendedRangeSelectors: true,
	EnableBinopFillModifiers:     true,
})

// SyntaxError tells of what this version of the parser does not know. A server may know
// it: an older one, or one that speaks a larger language. It does not tell of brackets
// that are not closed, which no server knows.
type SyntaxError struct{ message string }

func (e *SyntaxError) Error() string { return e.message }

// Parse parses an expression whose result is a number or numbers. Where the parser does
// not know it, the error is a *SyntaxError.
func Parse(expression string) (parser.Expr, error) {
	if len(expression) > MaxExpression {
		return nil, fmt.Errorf("the query is %d bytes long: at most %d are possible", len(expression), MaxExpression)
	}
	if err := shallow(expression); err != nil {
		return nil, err
	}
	e, err := all.ParseExpr(expression)
	switch {
	case err != nil && closed(expression):
		return nil, &SyntaxError{short(err).Error()}
	case err != nil:
		return nil, short(err)
	}
	switch t := e.Type(); t {
	case parser.ValueTypeScalar, parser.ValueTypeVector:
		return e, nil
	case parser.ValueTypeMatrix:
		return nil, errors.New("the query is a range of samples, not a value: take one number of it, with a function such as rate() or last_over_time()")
	default:
		return nil, fmt.Errorf("the query is a %s, not a number", parser.DocumentedType(t))
	}
}

// CheckSelector says what is wrong with a selector of series, as in match[].
func CheckSelector(selector string) error {
	if len(selector) > MaxExpression {
		return fmt.Errorf("it is %d bytes long: at most %d are possible", len(selector), MaxExpression)
	}
	matchers, err := all.ParseMetricSelector(selector)
	if err != nil {
		return short(err)
	}
	for _, m := range matchers {
		if !m.Matches("") {
			return nil
		}
	}
	return errors.New(`it selects everything: at least one matcher must not match the empty value, such as {namespace!=""}`)
}

// MetricName returns the one name of metrics that a selector allows; empty if it is
// not one.
func MetricName(selector string) string {
	matchers, err := all.ParseMetricSelector(selector)
	if err != nil {
		return ""
	}
	return fixedName(matchers)
}

// shallow refuses what may nest deep, by brackets or by operators: the parser looks at
// all that is below an operator, so it takes the square of their number.
func shallow(expression string) error {
	lexer, braces, nesting := parser.Lex(expression), 0, 0
	for {
		var item parser.Item
		lexer.NextItem(&item)
		switch {
		case item.Typ == parser.EOF || item.Typ == parser.ERROR:
			return nil // the parser tells of errors
		case item.Typ == parser.LEFT_BRACE:
			braces++
		case item.Typ == parser.RIGHT_BRACE:
			braces--
		case braces <= 0 && (item.Typ == parser.LEFT_PAREN || item.Typ.IsOperator()):
			if nesting++; nesting > maxNesting {
				return fmt.Errorf("the query has more than %d operators and brackets", maxNesting)
			}
		}
	}
}

// short keeps the first of the parser's errors, of a bounded length.
func short(err error) error {
	var many parser.ParseErrors
	if errors.As(err, &many) && len(many) > 0 {
		err = &many[0]
	}
	message := err.Error()
	var one *parser.ParseErr
	if errors.As(err, &one) && one.Err != nil {
		message = fmt.Sprintf("character %d: %v", one.PositionRange.Start+1, one.Err)
	}
	return errors.New(text.Truncate(message, 300))
}
