// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package text

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzShorten(f *testing.F) {
	f.Add("short", 10)
	f.Add(strings.Repeat("ü", 3000), 4096)
	f.Add("\xff\xfe\x80", 4)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		if limit < 4 || limit > 10_000 {
			return
		}
		got := Shorten(text, limit)
		if len(got) > limit {
			t.Errorf("%d bytes, limit %d", len(got), limit)
		}
		if utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("%q was cut within a character", got)
		}
	})
}
