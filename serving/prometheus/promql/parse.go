// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package promql builds and analyses PromQL with Prometheus' parser: it converts Kubernetes
// selectors to matchers, enforces a matcher on all selectors of an expression, and proves whether
// one evaluation can serve queries for different objects.
package promql

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/strutil"

	"github.com/metricsbackend/metrics-backend-operator/internal/regexpsize"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// MaxExpression limits the bytes of an expression.
const MaxExpression = 1 << 20

// maxNesting limits the operators and brackets of an expression.
const maxNesting = 1000

// promParser accepts all features: a server rejects those that are not enabled there.
var promParser = parser.NewParser(parser.Options{
	EnableExperimentalFunctions: true,
	EnableBinopFillModifiers:    true,
})

// SyntaxError is returned for an expression that this version of the parser rejects but a server
// may accept, as it is older or has an extended language. Unbalanced brackets are another error.
type SyntaxError struct{ message string }

func (e *SyntaxError) Error() string { return e.message }

// Parse parses an expression, which must return a scalar or an instant vector. If a server may
// accept what the parser rejects, the error is a *SyntaxError. Matchers with regular expressions
// are not compiled, and their own Matches panics: use matches.
func Parse(expression string) (parser.Expr, error) {
	if len(expression) > MaxExpression {
		return nil, fmt.Errorf("the query is %d bytes long: at most %d are possible", len(expression), MaxExpression)
	}
	masked, patterns, err := maskRegexps(expression)
	if err != nil {
		return nil, err
	}
	e, err := promParser.ParseExpr(masked)
	switch {
	case err != nil && balanced(expression):
		return nil, &SyntaxError{firstError(err).Error()}
	case err != nil:
		return nil, firstError(err)
	}
	if err := unmask(e, patterns); err != nil {
		return nil, err
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

// parseAll parses expressions; the first that is wrong fails it.
func parseAll(expressions ...string) ([]parser.Expr, error) {
	all := make([]parser.Expr, len(expressions))
	for i, expression := range expressions {
		var err error
		if all[i], err = Parse(expression); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// CheckSelector returns an error unless a series selector is valid for match[].
func CheckSelector(selector string) error {
	if len(selector) > MaxExpression {
		return fmt.Errorf("it is %d bytes long: at most %d are possible", len(selector), MaxExpression)
	}
	matchers, err := parseSelector(selector)
	if err != nil {
		return firstError(err)
	}
	for _, m := range matchers {
		if !m.Matches("") {
			return nil
		}
	}
	return errors.New(`it selects everything: at least one matcher must not match the empty value, such as {namespace!=""}`)
}

// parseSelector returns matchers that match the empty value if those of the selector do.
func parseSelector(selector string) ([]*promlabels.Matcher, error) {
	masked, _, err := maskRegexps(selector)
	if err != nil {
		return nil, err
	}
	return promParser.ParseMetricSelector(masked)
}

// MetricName returns the metric name that a selector requires, or "".
func MetricName(selector string) string {
	matchers, err := parseSelector(selector)
	if err != nil {
		return ""
	}
	return fixedName(matchers)
}

// Window returns the longest range of an expression's range selectors and subqueries.
func Window(e parser.Expr) time.Duration {
	var window time.Duration
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
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

// maskRegexps limits what takes the parser more time than the length of an expression explains: operators
// and brackets, in whose number its time is quadratic, and regular expressions. It returns these in
// order, and the expression with text of the same length in place of them: the parser compiles each,
// which takes it 2 ms for a class such as [^/] alone. The text matches the empty value if the regular
// expression does, which the parser asks for.
func maskRegexps(expression string) (masked string, patterns []string, err error) {
	lexer, braces, nesting := parser.Lex(expression), 0, 0
	result, size := []byte(expression), regexpsize.Size{Limit: maxInstructions + len(expression)}
	var before, item parser.Item
	for {
		if item.Typ != parser.COMMENT {
			before = item
		}
		lexer.NextItem(&item)
		switch {
		case item.Typ == parser.EOF || item.Typ == parser.ERROR:
			return string(result), patterns, nil // left to the parser
		case item.Typ == parser.LEFT_BRACE:
			braces++
		case item.Typ == parser.RIGHT_BRACE:
			braces--
		case item.Typ == parser.STRING && before.Typ != parser.EQL && before.Typ != parser.NEQ:
			pattern, err := strutil.Unquote(item.Val)
			if err != nil {
				continue // left to the parser
			}
			matcher := before.Typ == parser.EQL_REGEX || before.Typ == parser.NEQ_REGEX
			if matcher {
				patterns = append(patterns, pattern)
			}
			if !strings.ContainsAny(pattern, `\.+*?()[]{}^$`) {
				continue // words, which are not compiled
			}
			// Strings may be regular expressions for the server, as in label_replace.
			empty, err := size.Add(pattern)
			invalid, isInvalid := errors.AsType[*syntax.Error](err)
			switch {
			case isInvalid && matcher:
				return "", nil, fmt.Errorf("character %d: %w", item.Pos+1, &SyntaxError{text.Truncate(invalid.Error(), 300)})
			case err != nil && !isInvalid:
				return "", nil, fmt.Errorf("character %d: %w", item.Pos+1, err)
			}
			if matcher {
				text := result[item.Pos:][1 : len(item.Val)-1]
				copy(text, strings.Repeat("x", len(text)))
				if empty {
					text[0] = '|'
				}
			}
		case braces <= 0 && (item.Typ == parser.LEFT_PAREN || item.Typ.IsOperator()):
			if nesting++; nesting > maxNesting {
				return "", nil, fmt.Errorf("the query has more than %d operators and brackets", maxNesting)
			}
		}
	}
}

// firstError returns the first of the parser's errors, truncated.
func firstError(err error) error {
	if many, ok := errors.AsType[parser.ParseErrors](err); ok && len(many) > 0 {
		err = &many[0]
	}
	message := err.Error()
	if one, ok := errors.AsType[*parser.ParseErr](err); ok && one.Err != nil {
		message = fmt.Sprintf("character %d: %v", one.PositionRange.Start+1, one.Err)
	}
	return errors.New(text.Truncate(message, 300))
}

// balanced reports whether all brackets and quotes are closed, as any server requires.
func balanced(expression string) bool {
	var open []byte
	for i := 0; i < len(expression); i++ {
		switch c := expression[i]; c {
		case '(', '[', '{':
			open = append(open, c)
		case ')', ']', '}':
			if len(open) == 0 || open[len(open)-1] != opening[c] {
				return false
			}
			open = open[:len(open)-1]
		case '#':
			end := strings.IndexByte(expression[i:], '\n')
			if end < 0 {
				return len(open) == 0
			}
			i += end
		case '"', '\'', '`':
			for i++; i < len(expression) && expression[i] != c; i++ {
				if expression[i] == '\\' && c != '`' {
					i++
				}
			}
			if i >= len(expression) {
				return false
			}
		}
	}
	return len(open) == 0
}

var opening = map[byte]byte{')': '(', ']': '[', '}': '{'}

// PlainName reports whether a metric's name is parsed as a name anywhere in an expression. Since
// Prometheus 3 a scraped workload can use any text as a name, including operators. Keywords
// and numbers are not plain names either.
func PlainName(name string) bool {
	if !model.LegacyValidation.IsValidMetricName(name) {
		return false
	}
	var item parser.Item
	parser.Lex(name).NextItem(&item)
	return (item.Typ == parser.IDENTIFIER || item.Typ == parser.METRIC_IDENTIFIER) && item.Val == name
}

// SameButName reports whether two expressions differ only in the metric names that were put into
// them. It returns false for names that are not legacy names.
func SameButName(one, oneName, two, twoName string) bool {
	if one == two {
		return true
	}
	if !model.LegacyValidation.IsValidMetricName(oneName) || !model.LegacyValidation.IsValidMetricName(twoName) {
		return false
	}
	e, err := parseAll(one, two)
	return err == nil && strings.ReplaceAll(e[0].String(), oneName, twoName) == e[1].String()
}

// ReadsSeries reports whether an expression reads series, or may, as it cannot be parsed here.
func ReadsSeries(expression string) bool {
	e, err := Parse(expression)
	return err != nil || len(selectors(e)) > 0
}
