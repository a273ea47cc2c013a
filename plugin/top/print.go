// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/cli-runtime/pkg/printers"

	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

// printOnce writes the table of kubectl top.
func (v *view) printOnce(out io.Writer) error {
	w := printers.GetNewTabWriter(out)
	names := v.nameColumns()
	write := func(cells []string) {
		// kubectl ends each cell with a tab, the last one too.
		_, _ = fmt.Fprintln(w, tabbed(cells))
	}
	if !v.noHeaders {
		var heads []string
		for i := range names {
			heads = append(heads, names[i].head)
		}
		if heads = append(heads, cpuHead); v.percentages {
			heads = append(heads, cpuPercentHead)
		}
		if heads = append(heads, memoryHead); v.percentages {
			heads = append(heads, memoryPercentHead)
		}
		write(heads)
	}
	rows := v.table.sorted(v.by)
	for _, r := range rows {
		var cells []string
		for i := range names {
			cells = append(cells, names[i].of(&r.id))
		}
		available := v.available[r.id.name]
		if cells = append(cells, cores(r.cpu)); v.percentages {
			cells = append(cells, percent(r.cpu, available.cpu))
		}
		if cells = append(cells, mebibytes(r.memory)); v.percentages {
			cells = append(cells, percent(r.memory, available.memory))
		}
		write(cells)
	}
	for _, name := range v.withoutMetrics() {
		write([]string{name, unknown, unknown, unknown, unknown})
	}
	return w.Flush()
}

// withoutMetrics returns the nodes that have no metrics.
func (v *view) withoutMetrics() []string {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(v.available)) {
		if _, has := v.table.objects[name]; !has {
			missing = append(missing, name)
		}
	}
	return missing
}

func tabbed(cells []string) string {
	var out strings.Builder
	for _, cell := range cells {
		out.WriteString(output.Line(cell) + "\t")
	}
	return out.String()
}

// lines appends a line for each sample, for pipes and logs.
type lines struct {
	view     *view
	out, err io.Writer
	now      func() time.Time
	widths   []int
	printed  string
}

// follow writes all rows, then the changes, until ctx ends or the source is closed.
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
	if err := l.printConnection(s, interval); err != nil {
		return err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := l.printConnection(s, interval); err != nil {
				return err
			}
		case c, open := <-s.changes:
			if !open {
				return nil
			}
			// The first changes repeat the snapshot.
			if len(c.samples) > 0 && slices.Equal(known[c.object], c.samples) {
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

// printConnection writes the connection's state to the error stream when it changes.
func (l *lines) printConnection(s *source, interval time.Duration) error {
	n := notice{status: s.status(), interval: interval}
	if text := n.connection(); text != l.printed {
		l.printed = text
		_, err := fmt.Fprintln(l.err, output.Line(text))
		return err
	}
	return nil
}

// begin writes the heads and the current rows, which determine the widths of columns.
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

// change writes the rows of an object, with dashes for one that is gone.
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
