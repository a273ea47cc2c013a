// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/client"
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
	sum         bool // a row with the sum of all, if printed once
	symbols     symbols

	table     *table
	available map[string]usage
	// resources are requests and limits by row; nil if they are not shown.
	resources map[id]resources
	notice    notice
	now       time.Time
	stale     time.Duration // the age from which on a sample is shown faintly
	scroll    int           // rows that are above the first one shown
}

// frame returns the lines for a terminal of that size: at most height lines, none wider than
// width. On small terminals rows take precedence over title and footer.
func (v *view) frame(width, height int) []output.Cell {
	var lines []output.Cell
	if height >= 10 {
		lines = append(lines, output.Cell{Text: v.title + ", by " + string(v.by), Tone: output.Strong})
	}
	if height >= 3 {
		lines = append(lines, v.notice.line())
	}
	rows := v.table.sorted(v.by)
	columns := v.arrange(rows, width)
	if !v.noHeaders && height >= 4 {
		lines = append(lines, output.Cell{Text: v.join(columns, headOf), Tone: output.Strong})
	}
	room := height - len(lines)
	hasFooter := height >= 8
	if hasFooter {
		room--
	}
	// The rows that fit, even if scroll is beyond the last one.
	room = max(room, 1)
	first := max(min(v.scroll, len(rows)-room), 0)
	last := min(first+room, len(rows))
	for _, r := range rows[first:last] {
		l := output.Text(v.join(columns, r.text))
		if v.now.Sub(r.at) >= v.stale {
			l.Tone = output.Faint
		}
		lines = append(lines, l)
	}
	if hasFooter {
		lines = append(lines, output.Cell{Text: v.footer(first, last, len(rows)), Tone: output.Faint})
	}
	for i := range lines {
		lines[i].Text = truncate(output.Line(lines[i].Text), width, width-1, v.symbols.cut)
	}
	return lines
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

// notice is the state of the connection, and the age of the data.
type notice struct {
	status      client.Status
	interval    time.Duration // of polls
	newest      time.Duration // the age of the newest sample; negative without any
	lastContact time.Duration // time since then
	problem     string        // another problem, if any
}

func (n *notice) line() output.Cell {
	tone := output.Plain
	if n.status.Mode != client.Watching || n.status.Err != nil || n.problem != "" {
		tone = output.Warning
	}
	var words []string
	if n.status.Mode == client.Starting && n.status.Synced {
		words = append(words, "last answer "+age(n.lastContact)+" ago")
	}
	if n.newest >= 0 {
		words = append(words, "newest sample "+age(n.newest)+" old")
	}
	if n.problem != "" {
		words = append(words, n.problem)
	}
	return output.Cell{Text: n.connection(words...), Tone: tone}
}

// connection describes the connection, then the words, and then the reason if it is not a watch, which
// may be long and truncated. Without words it does not change with time alone.
func (n *notice) connection(words ...string) string {
	api := strings.TrimSuffix("metrics.k8s.io/"+n.status.Version, "/")
	state, reason := "asking "+api, n.status.Err
	switch {
	case n.status.Mode == client.Polling:
		state, reason = "polling "+api+" every "+age(n.interval), n.status.PollingReason
	case n.status.Mode == client.Watching && reason != nil:
		state = "watching " + api + " again soon"
	case n.status.Mode == client.Watching:
		state = "watching " + api
	case reason != nil:
		state = "no answer, trying again"
	}
	text := strings.Join(slices.Concat([]string{state}, words), "; ")
	if reason != nil {
		text += ": " + reason.Error()
	}
	return text
}
