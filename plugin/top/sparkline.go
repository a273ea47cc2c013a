// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"runtime"
	"slices"
	"strings"
)

// symbols are what the table is drawn with.
type symbols struct {
	// ramp is a history's lowest to highest value.
	ramp []rune
	// cut stands for what is left out of a name.
	cut string
	// arrows are the keys that scroll.
	arrows string
}

var (
	blocks = symbols{ramp: []rune("▁▂▃▄▅▆▇█"), cut: "…", arrows: "↑↓"}
	ascii  = symbols{ramp: []rune("_.-:=+*#"), cut: "~", arrows: "j/k"}
)

// symbolsFor goes by the locale, as libc does: the first of the variables that is set.
func symbolsFor(getenv func(string) string) symbols {
	if runtime.GOOS == "windows" {
		if getenv("WT_SESSION") != "" { // Windows Terminal; an old console has other code pages
			return blocks
		}
		return ascii
	}
	for _, variable := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := strings.ToLower(getenv(variable)); locale != "" {
			if strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8") {
				return blocks
			}
			return ascii
		}
	}
	return ascii
}

// sparkline draws the last values, on a scale from zero to the highest of them, into
// width columns, the newest at the right end.
func sparkline(values []int64, width int, ramp []rune) string {
	if len(values) > width {
		values = values[len(values)-width:]
	}
	var out strings.Builder
	out.WriteString(strings.Repeat(" ", width-len(values)))
	if len(values) == 0 {
		return out.String()
	}
	highest := float64(max(slices.Max(values), 1))
	top := float64(len(ramp) - 1)
	for _, value := range values {
		out.WriteRune(ramp[int(float64(max(value, 0))/highest*top+0.5)])
	}
	return out.String()
}
