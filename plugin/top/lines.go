// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

// lines appends a line for each sample, for pipes and logs.
type lines struct {
	view     *view
	out, err io.Writer
	now      func() time.Time
	widths   []int
	told     string
}

// follow writes all rows, and then what changes, until ctx ends or changes is closed.
func (l *lines) follow(ctx context.Context, s *source, interval time.Duration) error {
	first := s.snapshot()
	known := map[string][]sample{}
	for _, c := range first {
		l.view.table.apply(c)
		known[c.object] = c.samples
	}
	if err := l.begin(); err != nil {
		return err
	}
	if err := l.tell(s, interval); err != nil {
		return err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := l.tell(s, interval); err != nil {
				return err
			}
		case c, open := <-s.changes:
			if !open {
				return nil
			}
			// The first changes repeat what was written above.
			if same(known[c.object], c.samples) {
				delete(known, c.object)
				continue
			}
			delete(known, c.object)
			if err := l.change(c); err != nil {
				return err
			}
		}
	}
}

func same(a, b []sample) bool {
	if len(a) != len(b) || len(a) == 0 {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// tell says on the error stream how the lines come about, whenever that changes.
func (l *lines) tell(s *source, interval time.Duration) error {
	n := notice{status: s.status(), interval: interval}
	if fed := n.fed(); fed != l.told {
		l.told = fed
		_, err := fmt.Fprintln(l.err, output.Line(fed))
		return err
	}
	return nil
}

// begin writes the heads and the rows that there are. Columns keep their widths.
func (l *lines) begin() error {
	var table [][]string
	if !l.view.noHeaders {
		heads := []string{"TIME"}
		for _, c := range l.view.nameColumns() {
			heads = append(heads, c.head)
		}
		table = append(table, append(heads, cpuHead, memoryHead))
	}
	for _, r := range l.view.table.sorted(l.view.by) {
		table = append(table, l.cells(&r.sample))
	}
	for _, cells := range table {
		for i, cell := range cells {
			if i == len(l.widths) {
				l.widths = append(l.widths, 0)
			}
			l.widths[i] = max(l.widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, cells := range table {
		if err := l.write(cells); err != nil {
			return err
		}
	}
	return nil
}

func (l *lines) cells(s *sample) []string {
	cells := []string{s.at.UTC().Format(time.RFC3339)}
	for _, c := range l.view.nameColumns() {
		cells = append(cells, c.of(&s.id))
	}
	return append(cells, cores(s.cpu), mebibytes(s.memory))
}

// change writes the rows of an object; of one that is gone, without figures.
func (l *lines) change(c change) error {
	for i := range c.samples {
		if err := l.write(l.cells(&c.samples[i])); err != nil {
			return err
		}
	}
	for i := range c.last {
		cells := l.cells(&c.last[i])
		cells[0] = l.now().UTC().Format(time.RFC3339)
		cells[len(cells)-2], cells[len(cells)-1] = "-", "-"
		if err := l.write(cells); err != nil {
			return err
		}
	}
	return nil
}

func (l *lines) write(cells []string) error {
	var out strings.Builder
	for i, cell := range cells {
		width := 0
		if i < len(l.widths) {
			width = l.widths[i]
		}
		if i > 0 {
			out.WriteString(gap)
		}
		out.WriteString(pad(output.Line(cell), width))
	}
	_, err := fmt.Fprintln(l.out, strings.TrimRight(out.String(), " "))
	return err
}
