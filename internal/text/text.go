// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package text bounds and cleans text from outside, such as error messages of other
// servers, so that it fits a status, an event, a log line or a terminal.
package text

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const ellipsis = "…"

// Prefix returns the longest prefix of s that has at most limit bytes and ends with a
// whole character. It allocates nothing.
func Prefix(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for end := limit; end >= max(limit-utf8.UTFMax+1, 0); end-- {
		if utf8.RuneStart(s[end]) {
			return s[:end]
		}
	}
	return s[:limit] // not UTF-8
}

// Truncate returns s, or a prefix of it that ends with an ellipsis. The result has at
// most limit bytes, which must be at least the ellipsis' three.
func Truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return Prefix(s, limit-len(ellipsis)) + ellipsis
}

// Printable truncates s to limit bytes and replaces invalid UTF-8 and characters that
// could control a terminal, such as escape sequences and changes of the writing
// direction, by question marks.
func Printable(s string, limit int) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, Truncate(s, limit))
}

// Line returns s as one line of at most limit bytes: white space becomes single
// spaces, and what else is not printable is left out.
func Line(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
	// A copy, as the text may be a small part of a large one.
	return strings.Clone(Truncate(strings.Join(strings.Fields(s), " "), limit))
}

// AndMore returns " (and 2 more pods)", or "" if n is not positive.
func AndMore(n int, what string) string {
	switch {
	case n <= 0:
		return ""
	case n == 1:
		return " (and 1 more " + what + ")"
	}
	return fmt.Sprintf(" (and %d more %ss)", n, what)
}
