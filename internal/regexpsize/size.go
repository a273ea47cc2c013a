// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package regexpsize limits what regular expressions of others cost to compile and to keep.
package regexpsize

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// maxWideClasses limits what wideClass matches. With the flag i, with which one takes up to 6 ms
// to parse, there may be two.
const maxWideClasses = 30

// escapesAndClasses matches quoted text, escapes and classes in brackets: a hyphen elsewhere is no range.
var escapesAndClasses = regexp.MustCompile(`(?s)\\Q.*?(?:\\E|$)|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*`)

// wideClass matches what syntax.Parse needs many runes for: Unicode classes, and ranges that may end
// beyond ASCII.
var wideClass = regexp.MustCompile(`\\[pP]|-(?:\\[x0-7]|[^\x00-\x7f])`)

// foldsCase matches the flag that ignores case.
var foldsCase = regexp.MustCompile(`\(\?[a-zA-Z]*i`)

// Size is that of several regular expressions.
type Size struct {
	// Limit is that of the instructions of all of them, compiled.
	Limit int

	instructions, wideClasses int
}

// Add returns an error if the regular expressions are too large with this one, and otherwise whether
// it matches the empty text. It does not compile it. The error of an invalid one is a *syntax.Error.
func (s *Size) Add(pattern string) (empty bool, err error) {
	wide := len(wideClass.FindAllStringIndex(strings.Join(escapesAndClasses.FindAllString(pattern, -1), " "), maxWideClasses+1))
	if foldsCase.MatchString(pattern) {
		wide *= 15
	}
	if s.wideClasses += wide; s.wideClasses > maxWideClasses {
		return false, errors.New(`the regular expressions have too many Unicode classes such as \pL, or ranges beyond ASCII: use fewer, and without (?i)`)
	}
	re, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
	if err != nil {
		return false, err
	}
	size, empty := Measure(re)
	if s.instructions += size; s.instructions > s.Limit {
		return false, fmt.Errorf("the regular expressions are too large, as they compile to more than %d instructions: repeat less, such as x{10} instead of x{1000}", s.Limit)
	}
	return empty, nil
}

// Measure returns a bound of the instructions of a compiled regular expression, and whether it
// matches the empty text.
func Measure(re *syntax.Regexp) (size int, empty bool) {
	alternate := re.Op == syntax.OpAlternate
	empty = !alternate
	for _, sub := range re.Sub {
		n, e := Measure(sub)
		if size += n; e == alternate {
			empty = e
		}
	}
	if re.Op != syntax.OpConcat {
		size += 2 * len(re.Sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune), false
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL, syntax.OpNoMatch, syntax.OpWordBoundary:
		return 1, false
	case syntax.OpStar, syntax.OpQuest:
		empty = true
	case syntax.OpRepeat:
		size *= max(re.Min, re.Max, 1) // x{2,4} is xx(x(x)?)?
		empty = empty || re.Min == 0
	}
	return max(size, 1), empty
}
