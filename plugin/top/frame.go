// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

// view is the input of a frame, except for the terminal's size.
type view struct {
	title       string
	by          order
	namespaces  bool // a column with the namespace
	containers  bool // rows are containers, with a column of their pod
	percentages bool // of what nodes have
	noHeaders   bool
	symbols     symbols

	table     *table
	available map[string]usage
	notice    notice
	now       time.Time
	stale     time.Duration // the age from which on a sample is shown faintly
	scroll    int           // rows that are above the first one shown
}

type line struct {
	text string
	tone output.Tone
}

// frame returns the lines for a terminal of that size: at most height lines, none wider than
// width. On small terminals rows take precedence over title and footer.
func (v *view) frame(width, height int) []line {
	var above, below []line
	if height >= 10 {
		above = append(above, line{v.title + ", by " + string(v.by), output.Strong})
	}
	if height >= 3 {
		above = append(above, v.notice.line())
	}
	rows := v.table.sorted(v.by)
	columns := v.arrange(rows, width)
	if !v.noHeaders && height >= 4 {
		above = append(above, line{v.join(columns, headOf), output.Strong})
	}
	room := height - len(above)
	if height >= 8 {
		room--
	}
	first, last := v.window(len(rows), room)
	if height >= 8 {
		below = append(below, line{v.footer(first, last, len(rows)), output.Faint})
	}
	lines := above
	for _, r := range rows[first:last] {
		l := line{text: v.join(columns, r.text)}
		if v.now.Sub(r.at) >= v.stale {
			l.tone = output.Faint
		}
		lines = append(lines, l)
	}
	lines = append(lines, below...)
	for i := range lines {
		lines[i].text = truncateEnd(output.Line(lines[i].text), width, v.symbols.cut)
	}
	return lines
}

// window returns the range of rows that fit, even if scroll is beyond the last one.
func (v *view) window(rows, room int) (first, last int) {
	room = max(room, 1)
	first = max(min(v.scroll, rows-room), 0)
	return first, min(first+room, rows)
}

func (v *view) footer(first, last, rows int) string {
	const keys = "c cpu  m memory  n name  q quit"
	switch {
	case rows == 0:
		return "nothing to show yet  " + keys
	case last-first < rows:
		return fmt.Sprintf("%d-%d of %d  %s scroll  %s", first+1, last, rows, v.symbols.arrows, keys)
	}
	return fmt.Sprintf("%d in all  %s", rows, keys)
}
