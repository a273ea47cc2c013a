// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"strings"
)

// Carrying says how far an expression selects by a matcher.
type Carrying int

const (
	// CarriedByAll means: each selector of the expression has the matcher.
	CarriedByAll Carrying = iota
	// CarriedBySome means: some selectors have it.
	CarriedBySome
	// Replaced means: none has it, and some have another one on the same label.
	Replaced
	// Ignored means: no selector has a matcher on the label.
	Ignored
)

// Carries says how far an expression selects by each of the matchers. Of an expression
// that cannot be parsed it knows only whether the matcher is written in it, and takes
// it for replaced if it is not.
func Carries(expression string, matchers []Matcher) []Carrying {
	carried := make([]Carrying, len(matchers))
	e, err := Parse(expression)
	if err != nil {
		for i, m := range matchers {
			carried[i] = Replaced
			if strings.Contains(expression, m.String()) {
				carried[i] = CarriedBySome
			}
		}
		return carried
	}
	all := selectors(e)
	for i, m := range matchers {
		exact, others := 0, 0
		for _, s := range all {
			has, other := false, false
			for _, each := range s.LabelMatchers {
				if each.Name == m.Label {
					same := each.Type == m.Type && each.Value == m.Value
					has, other = has || same, other || !same
				}
			}
			switch {
			case has:
				exact++
			case other:
				others++
			}
		}
		switch {
		case exact == len(all):
			carried[i] = CarriedByAll
		case exact > 0:
			carried[i] = CarriedBySome
		case others > 0:
			carried[i] = Replaced
		default:
			carried[i] = Ignored
		}
	}
	return carried
}
