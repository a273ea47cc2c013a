// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"fmt"
	"io"
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
	cpu, memory := cpuColumn(), memoryColumn()
	columns := slices.Concat(v.nameColumns(),
		v.usageColumns(cpu, func(u usage) int64 { return u.cpu }, cpuText), v.usageColumns(memory, func(u usage) int64 { return u.memory }, memoryText))
	if v.percentages {
		columns = append(v.nameColumns(), cpu, v.cpuPercentColumn(), memory, v.memoryPercentColumn())
	}
	write := func(text func(*column) string) {
		for _, c := range columns {
			// kubectl ends each cell with a tab, the last one too.
			_, _ = io.WriteString(w, output.Line(text(c))+"\t")
		}
		_, _ = fmt.Fprintln(w)
	}
	if !v.noHeaders {
		write(headOf)
	}
	for _, r := range v.table.sorted(v.by) {
		write(r.text)
	}
	for _, name := range v.table.missing(v.available) {
		write(func(c *column) string {
			if c.key {
				return name
			}
			return unknown
		})
	}
	if v.sum {
		total := &row{}
		for _, r := range v.table.rows {
			total.usage = total.plus(r.usage)
		}
		for _, text := range []func(*column) string{func(*column) string { return "________" }, total.text} {
			write(func(c *column) string {
				if c != cpu && c != memory {
					return ""
				}
				return text(c)
			})
		}
	}
	return w.Flush()
}

// lines appends a line for each sample, for pipes and logs.
type lines struct {
	view     *view
	out, err io.Writer
	now      func() time.Time
	columns  []*column
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
	at := &column{head: "TIME", key: true, value: func(r *row) string { return r.at.UTC().Format(time.RFC3339) }}
	l.columns = slices.Concat([]*column{at}, l.view.nameColumns(), []*column{cpuColumn(), memoryColumn()})
	var texts []func(*column) string
	if !l.view.noHeaders {
		texts = append(texts, headOf)
	}
	for _, r := range l.view.table.sorted(l.view.by) {
		texts = append(texts, r.text)
	}
	for _, text := range texts {
		for _, c := range l.columns {
			c.width = max(c.width, utf8.RuneCountInString(text(c)))
		}
	}
	for _, text := range texts {
		if err := l.write(text); err != nil {
			return err
		}
	}
	return nil
}

// change writes the rows of an object, with dashes for one that is gone.
func (l *lines) change(c change) error {
	for _, s := range c.samples {
		r := &row{sample: s}
		if err := l.write(r.text); err != nil {
			return err
		}
	}
	for _, s := range c.last {
		s.at = l.now()
		r := &row{sample: s}
		dashed := func(c *column) string {
			if c.key {
				return r.text(c)
			}
			return "-"
		}
		if err := l.write(dashed); err != nil {
			return err
		}
	}
	return nil
}

func (l *lines) write(text func(*column) string) error {
	var cells []string
	for _, c := range l.columns {
		cells = append(cells, fmt.Sprintf("%-*s", c.width, output.Line(text(c))))
	}
	_, err := fmt.Fprintln(l.out, strings.TrimRight(strings.Join(cells, gap), " "))
	return err
}
