// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package text makes text of others fit for a status, an event or a terminal.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Shorten cuts text to at most limit bytes, and never within a character.
func Shorten(text string, limit int) string {
	const ellipsis = "…"
	if len(text) <= limit {
		return text
	}
	end := limit - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}

// Printable is at most limit bytes of text, without what a terminal would obey.
func Printable(text string, limit int) string {
	return Shorten(strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text), limit)
}
