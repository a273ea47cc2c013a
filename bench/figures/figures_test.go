// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"strings"
	"testing"
	"time"
)

func TestDurations(t *testing.T) {
	var a, b Durations
	if a.Quantile(0.5) != 0 {
		t.Error("a quantile of nothing")
	}
	for i := range 60 {
		a.Add(time.Duration(100-i) * time.Millisecond) // 100 down to 41
	}
	for i := range 40 {
		b.Add(time.Duration(i+1) * time.Millisecond) // 1 up to 40
	}
	a.Merge(&b)
	for q, want := range map[float64]int{0: 1, 0.01: 1, 0.5: 50, 0.99: 99, 0.991: 100, 1: 100} {
		if got := a.Quantile(q); got != time.Duration(want)*time.Millisecond {
			t.Errorf("quantile %g is %v, want %dms", q, got, want)
		}
	}
	if a.Len() != 100 {
		t.Errorf("%d measurements", a.Len())
	}
}

func TestAges(t *testing.T) {
	var a, b Ages
	if ages, _ := a.Distribution(); ages != nil || a.Quantile(0.5) != 0 {
		t.Error("a distribution of nothing")
	}
	// A new value each second: the median age is 0.5 s.
	for range 10 {
		a.Add(0, time.Second)
	}
	near(t, "median", a.Quantile(0.5), 500*time.Millisecond)
	near(t, "p99", a.Quantile(0.99), 990*time.Millisecond)

	// The same time with values of 3 to 4 s.
	for range 10 {
		b.Add(3*time.Second, 4*time.Second)
	}
	a.Merge(&b)
	near(t, "first quarter", a.Quantile(0.25), 500*time.Millisecond)
	near(t, "third quarter", a.Quantile(0.75), 3500*time.Millisecond)

	// Beyond the span, before the value was sampled, backwards: no panic, and no weight
	// without time.
	var c Ages
	c.Add(time.Hour, 2*time.Hour)
	near(t, "beyond", c.Quantile(0.5), span)
	var d Ages
	d.Add(time.Second, 0)
	if d.Quantile(1) != 0 {
		t.Error("a stretch of no length has weight")
	}
}

func TestMarkdown(t *testing.T) {
	want := "| | a |\n|---|---|\n| x | 1 |\n"
	if got := Markdown([][]string{{"", "a"}, {"x", "1"}}); got != strings.ReplaceAll(want, "| |", "|  |") {
		t.Errorf("table:\n%s", got)
	}
}

func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if (got - want).Abs() > 2*resolution {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
