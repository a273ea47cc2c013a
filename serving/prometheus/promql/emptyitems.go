// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// beforeLabels are the keywords that a list of labels in parentheses follows.
var beforeLabels = []parser.ItemType{parser.BY, parser.WITHOUT, parser.ON, parser.IGNORING, parser.GROUP_LEFT, parser.GROUP_RIGHT}

// OmitEmptyItems removes the commas after which, or before which, a list of matchers or labels has an
// empty item: {,a="1"} becomes {a="1"}, and by (a,,b) becomes by (a,b). PromQL allows a comma at the end
// of a list. An expression that can be parsed stays the same.
func OmitEmptyItems(expression string) string {
	var kept strings.Builder
	var before, item parser.Item
	copied, list := 0, false
	for lexer := parser.Lex(expression); ; before = item {
		lexer.NextItem(&item)
		switch item.Typ {
		case parser.EOF, parser.ERROR:
			return kept.String() + expression[copied:]
		case parser.COMMENT:
			item = before
		case parser.LEFT_BRACE:
			list = true
		case parser.LEFT_PAREN:
			list = slices.Contains(beforeLabels, before.Typ)
		case parser.RIGHT_BRACE, parser.RIGHT_PAREN:
			list = false
		case parser.COMMA:
			if list && (before.Typ == parser.LEFT_BRACE || before.Typ == parser.LEFT_PAREN || before.Typ == parser.COMMA) {
				kept.WriteString(expression[copied:item.Pos])
				copied, item = int(item.Pos)+1, before
			}
		}
	}
}
