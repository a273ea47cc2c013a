// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Matcher is a label matcher of PromQL.
type Matcher struct {
	Label string
	Type  promlabels.MatchType
	// Value is a regular expression for MatchRegexp and MatchNotRegexp.
	Value string
}

// String returns the matcher as PromQL, with label and value escaped.
func (m Matcher) String() string {
	return LabelName(m.Label) + m.Type.String() + strconv.Quote(m.Value)
}

// LabelName returns a label's name as PromQL. It is quoted, which servers support since
// Prometheus 3, unless it has only letters, digits and underscores.
func LabelName(name string) string {
	if model.LegacyValidation.IsValidLabelName(name) {
		return name
	}
	return strconv.Quote(name)
}

// Equal returns a matcher for one of the values, which must not be empty.
func Equal(label string, values ...string) Matcher {
	if len(values) == 1 {
		return Matcher{label, promlabels.MatchEqual, values[0]}
	}
	return Matcher{label, promlabels.MatchRegexp, alternatives(values)}
}

// Set returns a matcher for any value of a label but the empty one.
func Set(label string) Matcher { return Matcher{label, promlabels.MatchNotEqual, ""} }

func alternatives(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = regexp.QuoteMeta(v)
	}
	return strings.Join(quoted, "|")
}

// Selection is the matcher for a requirement of a selector, and its values.
type Selection struct {
	Matcher
	Values []string
}

// FromSelector returns the matchers for a Kubernetes selector, sorted by label. As everywhere in
// Prometheus, a missing label has the empty value.
func FromSelector(s labels.Selector) ([]Selection, error) {
	if s == nil || s.Empty() {
		return nil, nil
	}
	requirements, selectable := s.Requirements()
	if !selectable {
		return nil, fmt.Errorf("the selector selects nothing")
	}
	requirements = slices.Clone(requirements)
	slices.SortStableFunc(requirements, func(a, b labels.Requirement) int { return strings.Compare(a.Key(), b.Key()) })
	selections := make([]Selection, 0, len(requirements))
	for _, r := range requirements {
		values := r.ValuesUnsorted()
		slices.Sort(values)
		m, err := matcher(r.Key(), r.Operator(), values)
		if err != nil {
			return nil, err
		}
		selections = append(selections, Selection{m, values})
	}
	return selections, nil
}

func matcher(label string, operator selection.Operator, values []string) (Matcher, error) {
	var m Matcher
	switch operator {
	case selection.Equals, selection.DoubleEquals, selection.In:
		m = Equal(label, values...)
	case selection.NotEquals, selection.NotIn:
		m = Equal(label, values...)
		if m.Type == promlabels.MatchEqual {
			m.Type = promlabels.MatchNotEqual
		} else {
			m.Type = promlabels.MatchNotRegexp
		}
	case selection.Exists:
		return Set(label), nil
	case selection.DoesNotExist:
		return Matcher{label, promlabels.MatchEqual, ""}, nil
	default:
		return Matcher{}, fmt.Errorf("the operator %q in the selector cannot be asked of PromQL: use in, notin, = or !=", operator)
	}
	if len(values) == 0 {
		return Matcher{}, fmt.Errorf("the operator %q in the selector needs values", operator)
	}
	return m, nil
}

func fixedName(matchers []*promlabels.Matcher) string {
	for _, m := range matchers {
		if m.Name == model.MetricNameLabel && m.Type == promlabels.MatchEqual {
			return m.Value
		}
	}
	return ""
}

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
