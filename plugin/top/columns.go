// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"
)

const (
	gap = "  "
	// minNames is the minimum width of all names of a row together.
	minNames = 16
	// minName is the minimum width of each name, in a terminal that is too narrow for that.
	minName = 6
	unknown = "<unknown>"
)

// column is a column of a table.
type column struct {
	head  string
	value func(*row) string
	// key means that the value tells which row it is.
	key bool
	// width is 0 for a column that is not shown.
	width int
}

func headOf(c *column) string { return c.head }

// text returns the row's value in a column.
func (r *row) text(c *column) string { return c.value(r) }

// nameColumns returns the columns that identify a row.
func (v *view) nameColumns() []*column {
	var names []*column
	if v.namespaces {
		names = append(names, &column{head: "NAMESPACE", key: true, value: func(r *row) string { return r.id.namespace }})
	}
	if v.containers {
		names = append(names, &column{head: "POD", key: true, value: func(r *row) string { return r.id.pod }})
	}
	return append(names, &column{head: "NAME", key: true, value: func(r *row) string { return r.id.name }})
}

// The units are kubectl top's.
func cpuColumn() *column {
	return &column{head: "CPU(cores)", value: func(r *row) string { return cpuText(r.cpu) }}
}

func memoryColumn() *column {
	return &column{head: "MEMORY(bytes)", value: func(r *row) string { return memoryText(r.memory) }}
}

func cpuText(milli int64) string { return fmt.Sprintf("%dm", milli) }

func memoryText(bytes int64) string { return fmt.Sprintf("%dMi", bytes/(1<<20)) }

func (v *view) cpuPercentColumn() *column {
	return &column{head: "CPU(%)", value: func(r *row) string { return percent(r.cpu, v.available[r.id.name].cpu) }}
}

func (v *view) memoryPercentColumn() *column {
	return &column{head: "MEMORY(%)", value: func(r *row) string { return percent(r.memory, v.available[r.id.name].memory) }}
}

func (v *view) trendColumn(head string, history func(*row) []int64) *column {
	c := &column{head: head}
	c.value = func(r *row) string { return sparkline(history(r), c.width, v.symbols.ramp) }
	return c
}

// arrange returns all columns, with the widths of those that fit a width. If they do not all
// fit, it leaves out the age, then the history of memory, of CPU, and the percentages. Before
// that, names are truncated to no less than two fifths of the width.
func (v *view) arrange(rows []*row, width int) []*column {
	names, cpu, memory := v.nameColumns(), cpuColumn(), memoryColumn()
	cpuPercent, memoryPercent := v.cpuPercentColumn(), v.memoryPercentColumn()
	cpuTrend := v.trendColumn("CPU TREND", func(r *row) []int64 { return r.cpus })
	memoryTrend := v.trendColumn("MEMORY TREND", func(r *row) []int64 { return r.memories })
	sampleAge := &column{head: "SAMPLE AGE", value: func(r *row) string { return age(v.now.Sub(r.at)) }}

	wanted := 0 // by names
	for _, c := range names {
		c.width = utf8.RuneCountInString(c.head)
		for _, r := range rows {
			c.width = max(c.width, utf8.RuneCountInString(c.value(r)))
		}
		wanted += c.width + len(gap)
	}
	given := min(wanted, max(minNames, width*2/5)) // to names

	cpu.width, memory.width = len(cpu.head), len(memory.head)
	left := width - given - cpu.width - len(gap) - memory.width
	if short := min(-left, given-len(names)*(minName+len(gap))); short > 0 {
		given, left = given-short, left+short
	}
	// fit shows the columns if there is room for all of them.
	fit := func(columns ...*column) bool {
		needed := 0
		for _, c := range columns {
			needed += len(c.head) + len(gap)
		}
		if left < needed {
			return false
		}
		left -= needed
		for _, c := range columns {
			c.width = len(c.head)
		}
		return true
	}
	if !v.percentages || fit(cpuPercent, memoryPercent) {
		_ = fit(cpuTrend) && fit(memoryTrend) && fit(sampleAge)
	}
	// The remaining width goes to names first, then to histories.
	more := min(max(left, 0), wanted-given)
	given, left = given+more, left-more
	if memoryTrend.width > 0 {
		grow := min(left/2, historyLength-memoryTrend.width)
		memoryTrend.width += grow
		left -= grow
	}
	if cpuTrend.width > 0 {
		cpuTrend.width += min(max(left, 0), historyLength-cpuTrend.width)
	}
	if memoryTrend.width > 0 { // the same scale of time for both
		cpuTrend.width = min(cpuTrend.width, memoryTrend.width)
	}
	shrink(names, wanted-given)
	return append(names, cpu, cpuPercent, cpuTrend, memory, memoryPercent, memoryTrend, sampleAge)
}

// shrink reduces the widths of the widest names.
func shrink(names []*column, by int) {
	for range by {
		widest := slices.MaxFunc(names, func(a, b *column) int { return a.width - b.width })
		widest.width = max(widest.width-1, 1)
	}
}

// join returns the texts of the columns that are shown, in one line. Keys that are too long are
// truncated.
func (v *view) join(columns []*column, text func(*column) string) string {
	var cells []string
	for _, c := range columns {
		switch {
		case c.key:
			// Names differ at their ends: the middle is cut.
			cells = append(cells, fmt.Sprintf("%-*s", c.width, truncate(text(c), c.width, (c.width-1)/2, v.symbols.cut)))
		case c.width > 0:
			cells = append(cells, fmt.Sprintf("%*s", c.width, text(c)))
		}
	}
	return strings.TrimRight(strings.Join(cells, gap), " ")
}

func percent(used, available int64) string {
	if available <= 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", int64(float64(used)/float64(available)*100))
}

// age formats a duration. Clocks may differ, so that it could be negative.
func age(d time.Duration) string { return duration.HumanDuration(max(d, 0)) }

// truncate returns a text of at most width characters: of one that is too long, the first of head, a mark, and the last
// ones that there is room for.
func truncate(text string, width, head int, mark string) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	head = max(head, 0)
	tail := max(width-1-head, 0)
	return string(runes[:head]) + mark + string(runes[len(runes)-tail:])
}

// symbols are the characters that draw the table.
type symbols struct {
	// ramp are the symbols of values, lowest to highest.
	ramp []rune
	// cut replaces the removed part of a name.
	cut string
	// arrows are the keys that scroll.
	arrows string
}

var (
	blocks = symbols{ramp: []rune("▁▂▃▄▅▆▇█"), cut: "…", arrows: "↑↓"}
	ascii  = symbols{ramp: []rune("_.-:=+*#"), cut: "~", arrows: "j/k"}
)

// symbolsFor returns the symbols for the locale, in the first variable that is set, as libc does.
func symbolsFor(getenv func(string) string) symbols {
	locale := strings.ToLower(cmp.Or(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG")))
	hasBlocks := strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
	if runtime.GOOS == "windows" {
		hasBlocks = getenv("WT_SESSION") != "" // Windows Terminal; an old console has other code pages
	}
	if hasBlocks {
		return blocks
	}
	return ascii
}

// sparkline draws the last values in width columns, the newest at the right, on a scale from
// zero to the highest.
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
