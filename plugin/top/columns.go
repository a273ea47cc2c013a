// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
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
	// minTrend and maxTrend are the limits of a history's width.
	minTrend, maxTrend = 8, historyLength
	// minNames is the minimum width of all names of a row together.
	minNames = 16
	// minName is the minimum width of each name, in a terminal that is too narrow for that.
	minName = 6
	unknown = "<unknown>"
)

// layout holds the columns that fit the terminal, with their widths.
type layout struct {
	names     []nameColumn
	cpu       int
	percent   int // 0: no percentages
	trend     int // of CPU; 0: none
	memory    int
	memTrend  int // of memory; 0: none
	sampled   int // 0: not shown
	symbols   symbols
	available map[string]usage // of nodes
	now       time.Time
}

type nameColumn struct {
	head  string
	of    func(*id) string
	width int
}

// usage is CPU in millicores and memory in bytes.
type usage struct{ cpu, memory int64 }

const (
	cpuHead, cpuPercentHead, cpuTrendHead = "CPU(cores)", "CPU(%)", "CPU TREND"
	memoryHead, memoryPercentHead         = "MEMORY(bytes)", "MEMORY(%)"
	memoryTrendHead, sampledHead          = "MEMORY TREND", "SAMPLE AGE"
)

// arrange returns the columns for a width. If they do not all fit, it leaves out the age, then
// the history of memory, of CPU, and the percentages. Before that, names are truncated to no
// less than two fifths of the width.
func (v *view) arrange(rows []*row, width int) layout {
	l := layout{
		names: v.nameColumns(), cpu: len(cpuHead), memory: len(memoryHead),
		symbols: v.symbols, available: v.available, now: v.now,
	}
	wanted := 0
	for i := range l.names {
		c := &l.names[i]
		c.width = utf8.RuneCountInString(c.head)
		for _, r := range rows {
			c.width = max(c.width, utf8.RuneCountInString(c.of(&r.id)))
		}
		wanted += c.width + len(gap)
	}
	names := min(wanted, max(minNames, width*2/5))

	left := width - names - l.cpu - len(gap) - l.memory
	if short := min(-left, names-len(l.names)*(minName+len(gap))); short > 0 {
		names, left = names-short, left+short
	}
	reserve := func(columns int) bool {
		if left < columns {
			return false
		}
		left -= columns
		return true
	}
	percents := len(cpuPercentHead) + len(memoryPercentHead) + 2*len(gap)
	if v.percentages && reserve(percents) {
		l.percent = 1
	}
	if !v.percentages || l.percent > 0 {
		if reserve(max(minTrend, len(cpuTrendHead)) + len(gap)) {
			l.trend = max(minTrend, len(cpuTrendHead))
			if reserve(len(memoryTrendHead) + len(gap)) {
				l.memTrend = len(memoryTrendHead)
				if reserve(len(sampledHead) + len(gap)) {
					l.sampled = len(sampledHead)
				}
			}
		}
	}
	// The remaining width goes to names first, then to histories.
	more := min(max(left, 0), wanted-names)
	names, left = names+more, left-more
	if l.memTrend > 0 {
		grow := min(left/2, maxTrend-l.memTrend)
		l.memTrend += grow
		left -= grow
	}
	if l.trend > 0 {
		l.trend += min(max(left, 0), maxTrend-l.trend)
	}
	if l.memTrend > 0 && l.trend > l.memTrend { // the same scale of time for both
		l.trend = l.memTrend
	}
	shrink(l.names, wanted-min(names, wanted))
	return l
}

// shrink reduces the widths of the widest names.
func shrink(names []nameColumn, columns int) {
	for ; columns > 0; columns-- {
		widest := &names[0]
		for i := range names {
			if names[i].width > widest.width {
				widest = &names[i]
			}
		}
		widest.width = max(widest.width-1, 1)
	}
}

func (v *view) nameColumns() []nameColumn {
	var all []nameColumn
	if v.namespaces {
		all = append(all, nameColumn{head: "NAMESPACE", of: func(i *id) string { return i.namespace }})
	}
	if v.containers {
		all = append(all, nameColumn{head: "POD", of: func(i *id) string { return i.pod }})
	}
	return append(all, nameColumn{head: "NAME", of: func(i *id) string { return i.name }})
}

func (l *layout) heads() string {
	var cells []string
	for i := range l.names {
		cells = append(cells, pad(truncateMiddle(l.names[i].head, l.names[i].width, l.symbols.cut), l.names[i].width))
	}
	add := func(width int, text string) {
		if width > 0 {
			cells = append(cells, fmt.Sprintf("%*s", width, text))
		}
	}
	add(l.cpu, cpuHead)
	add(l.percent*len(cpuPercentHead), cpuPercentHead)
	add(l.trend, cpuTrendHead)
	add(l.memory, memoryHead)
	add(l.percent*len(memoryPercentHead), memoryPercentHead)
	add(l.memTrend, memoryTrendHead)
	add(l.sampled, sampledHead)
	return strings.TrimRight(strings.Join(cells, gap), " ")
}

func (l *layout) line(r *row) string {
	var cells []string
	for i := range l.names {
		c := &l.names[i]
		cells = append(cells, pad(truncateMiddle(c.of(&r.id), c.width, l.symbols.cut), c.width))
	}
	available := l.available[r.id.name]
	add := func(width int, text string) {
		if width > 0 {
			cells = append(cells, fmt.Sprintf("%*s", width, text))
		}
	}
	add(l.cpu, cores(r.cpu))
	add(l.percent*len(cpuPercentHead), percent(r.cpu, available.cpu))
	if l.trend > 0 {
		cells = append(cells, sparkline(r.cpus, l.trend, l.symbols.ramp))
	}
	add(l.memory, mebibytes(r.memory))
	add(l.percent*len(memoryPercentHead), percent(r.memory, available.memory))
	if l.memTrend > 0 {
		cells = append(cells, sparkline(r.memories, l.memTrend, l.symbols.ramp))
	}
	add(l.sampled, age(l.now.Sub(r.at)))
	return strings.TrimRight(strings.Join(cells, gap), " ")
}

// The units are kubectl top's.
func cores(milli int64) string     { return fmt.Sprintf("%dm", milli) }
func mebibytes(bytes int64) string { return fmt.Sprintf("%dMi", bytes/(1<<20)) }

func percent(used, available int64) string {
	if available <= 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", int64(float64(used)/float64(available)*100))
}

// age formats a duration. Clocks may differ, so that it could be negative.
func age(d time.Duration) string { return duration.HumanDuration(max(d, 0)) }

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(width-utf8.RuneCountInString(text), 0))
}

// truncateMiddle removes the middle of a name that is too long: names differ at their ends.
func truncateMiddle(text string, width int, mark string) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	head := (width - 1) / 2
	tail := max(width-1-head, 0)
	return string(runes[:head]) + mark + string(runes[len(runes)-tail:])
}

// truncateEnd removes the end of a sentence that is too long.
func truncateEnd(text string, width int, mark string) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:max(width-1, 0)]) + mark
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
