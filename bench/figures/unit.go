// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Unit formats values of one kind.
type Unit struct {
	Name string
	// Number formats a value without the unit's name.
	Number func(float64) string
}

// Units of values that are in processors, bytes, seconds, shares of 1, and without a unit.
var (
	MilliCPU = Unit{"mCPU", func(v float64) string { return significant(1000 * v) }}
	MiB      = Unit{"MiB", func(v float64) string { return fmt.Sprintf("%.0f", v/(1<<20)) }}
	KB       = Unit{"kB", func(v float64) string { return significant(v / 1000) }}
	Ms       = Unit{"ms", func(v float64) string { return significant(1000 * v) }}
	Sec      = Unit{"s", func(v float64) string { return fmt.Sprintf("%.1f", v) }}
	Percent  = Unit{"%", func(v float64) string { return fmt.Sprintf("%.0f", 100*v) }}
	Quotient = Unit{"", func(v float64) string { return fmt.Sprintf("%.2f", v) }}
	Count    = Unit{"", func(v float64) string { return Thousands(int(math.Round(v))) }}
)

// Format formats a value.
func (u Unit) Format(v float64) string { return strings.TrimSpace(u.Number(v) + " " + u.Name) }

// Spread formats the median and the range of values, or nothing if there are none.
func (u Unit) Spread(all []float64) string {
	switch len(all) {
	case 0:
		return ""
	case 1:
		return u.Format(all[0])
	}
	return strings.TrimSpace(fmt.Sprintf("%s (%s–%s)", u.Format(Median(all)), u.Number(slices.Min(all)), u.Number(slices.Max(all))))
}

// significant formats a number with a decimal if it is small.
func significant(v float64) string {
	if math.Abs(v) < 9.95 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// Median returns the middle of the values, or the mean of the two in the middle. There must
// be one.
func Median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Thousands formats a number with commas.
func Thousands(n int) string {
	text := fmt.Sprint(n)
	var parts []string
	for len(text) > 3 {
		parts = append([]string{text[len(text)-3:]}, parts...)
		text = text[:len(text)-3]
	}
	return strings.Join(append([]string{text}, parts...), ",")
}

// Misses reports whether a ratio is above the goal when it is rounded as in a table.
func Misses(ratio, goal float64) bool { return math.Round(100*ratio)/100 > goal }

// Verdict formats a goal, the largest ratio that is aimed at, and whether a ratio misses it. It is
// empty without a goal.
func Verdict(ratio, goal float64) string {
	if goal == 0 {
		return ""
	}
	text := fmt.Sprintf("≤ %g", goal)
	if Misses(ratio, goal) {
		text += ", missed"
	}
	return text
}
