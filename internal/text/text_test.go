// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package text

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
	"unsafe"
)

func TestText(t *testing.T) {
	cases := map[string]struct {
		of    func(string, int) string
		s     string
		limit int
		want  string
	}{
		"prefix that fits":                  {Prefix, "abc", 3, "abc"},
		"prefix within a character":         {Prefix, "a€€", 6, "a€"},
		"prefix within the first character": {Prefix, "€€", 2, ""},
		"prefix of what is not UTF-8":       {Prefix, "\x80\x80\x80\x80\x80\x80", 5, "\x80\x80\x80\x80\x80"},
		"truncated":                         {Truncate, "abcdef", 5, "ab…"},
		"printable replaces":                {Printable, "\x1b[2Ja\xffb\u202e", 100, "?[2Ja?b?"},
		"printable truncates":               {Printable, "\x00bcdef", 5, "?b…"},
		"line of lines":                     {Line, " a\r\n\tb  c\x00\xff ", 100, "a b c"},
		"line truncates":                    {Line, "a\nb\ncdef", 6, "a b…"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.of(tc.s, tc.limit); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A line keeps no large text alive.
func TestLineIsACopy(t *testing.T) {
	s := "a" + strings.Repeat(" ", 1<<10)
	if got := Line(s, 10); got != "a" || unsafe.StringData(got) == unsafe.StringData(s) {
		t.Errorf("%q is a part of the text", got)
	}
}

func FuzzText(f *testing.F) {
	f.Add("short", 10)
	f.Add(strings.Repeat("ü", 3000), 4096)
	f.Add("\xff\xfe\x80", 4)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit < len(ellipsis) || limit > 10_000 {
			return
		}
		for _, got := range []string{Prefix(s, limit), Truncate(s, limit), Printable(s, limit), Line(s, limit)} {
			if len(got) > limit {
				t.Errorf("%d bytes, limit %d", len(got), limit)
			}
			if utf8.ValidString(s) && !utf8.ValidString(got) {
				t.Errorf("%q was cut within a character", got)
			}
		}
		if got := Printable(s, limit); strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is not printable", got)
		}
	})
}
