// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"regexp"
	"strconv"
	"strings"

	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// zero is a zero byte in a string of PromQL.
const zero = `\x00`

// Template returns an expression for many values of labels, from one with a matcher for one value of each.
// In it, a zero byte and the index of the matcher stand for the values, of which each is written as by
// Alternative, with | between them. For each combination of values it provably yields what the expression with
// these yields, besides the labels for which added is set: those the expression loses. ok is false
// without such a proof.
func Template(expression string, equal []Matcher) (template string, added []bool, ok bool) {
	e, err := Parse(expression)
	if err != nil || strings.Contains(e.String(), zero) {
		return "", nil, false
	}
	for i, m := range equal {
		s := separator{label: m.Label, marked: map[*parser.VectorSelector]bool{}, regroup: true}
		word := regexp.QuoteMeta(m.Value) == m.Value // matches itself alone
		for _, v := range selectors(e) {
			for j, of := range v.LabelMatchers {
				if of.Name == m.Label && of.Value == m.Value && (of.Type == promlabels.MatchEqual || of.Type == promlabels.MatchRegexp && word) {
					v.LabelMatchers[j] = &promlabels.Matcher{Type: promlabels.MatchRegexp, Name: m.Label, Value: "\x00" + strconv.Itoa(i)}
					s.marked[v] = true
				}
			}
		}
		of := s.analyze(e)
		if of != separate && of != regrouped {
			return "", nil, false
		}
		added = append(added, of == regrouped)
	}
	return strings.ReplaceAll(e.String(), zero, "\x00"), added, true
}

// Alternative returns a value as it stands in a Template.
func Alternative(value string) string {
	quoted := strconv.Quote(regexp.QuoteMeta(value))
	return quoted[1 : len(quoted)-1]
}
