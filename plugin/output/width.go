// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

const (
	// minText is the width that a wrapped text needs; with less, it starts on a new line.
	minText = 30
	// gap is the distance of columns.
	gap = 2
	// hanging is the indent of what starts on a new line.
	hanging = 4
)

// Terminal returns the file descriptor of a stream, and whether it is a terminal.
func Terminal(stream any) (int, bool) {
	file, ok := stream.(*os.File)
	if !ok {
		return 0, false
	}
	fd := int(file.Fd()) //nolint:gosec // descriptors are small
	return fd, term.IsTerminal(fd)
}

// terminalWidth returns the columns of the terminal that w writes to, and 0 if it is none.
func terminalWidth(w io.Writer) int {
	fd, ok := Terminal(w)
	if !ok {
		return 0
	}
	width, _, _ := term.GetSize(fd) // 0 with an error
	return width
}

// row writes cells in columns of the widths. What is beyond the printer's width is put on further
// lines: a cell that does not fit, and the rest of the last one.
type row struct {
	printer
	widths []int
	// first and below are the prefixes of the first and of further lines.
	first, below string
	cells        []Cell
}

func (r row) write(out *strings.Builder) {
	last := len(r.cells) - 1
	for last > 0 && r.cells[last].Text == "" {
		last--
	}
	out.WriteString(r.first)
	position, start := utf8.RuneCountInString(r.first), utf8.RuneCountInString(r.first)
	for column, cell := range r.cells[:last+1] {
		text := Line(cell.Text)
		size := utf8.RuneCountInString(text)
		wraps := column == last && !cell.Whole
		needed := size
		if wraps {
			needed = min(size, minText)
		}
		if position > 0 && r.width > 0 && start+needed > r.width && position+gap+size <= r.width {
			start = position + gap // not aligned with other rows
		}
		switch {
		case column == 0:
		case r.width > 0 && start+needed > r.width && position > r.indent():
			out.WriteByte('\n')
			position = r.pad(out, 0)
		default:
			out.WriteString(strings.Repeat(" ", start-position))
			position = start
		}
		if wraps && r.width > 0 && position+size > r.width {
			r.wrap(out, cell, text, position)
		} else {
			out.WriteString(cell.Tone.Colorize(text, r.color))
		}
		start = position + gap
		if column < len(r.widths) {
			start += max(r.widths[column], size)
		} else {
			start += size
		}
		position += size
	}
	out.WriteByte('\n')
}

// indent is the position at which a cell on a new line starts.
func (r row) indent() int { return utf8.RuneCountInString(r.below) + hanging }

// pad writes the prefix of a further line up to a position, at least to the indent. It returns
// the position.
func (r row) pad(out *strings.Builder, position int) int {
	out.WriteString(r.below)
	position = max(position, r.indent())
	out.WriteString(strings.Repeat(" ", position-utf8.RuneCountInString(r.below)))
	return position
}

// wrap writes a text at a position, and continues it there on further lines.
func (r row) wrap(out *strings.Builder, cell Cell, text string, position int) {
	var line string
	flush := func() { out.WriteString(cell.Tone.Colorize(line, r.color)) }
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case position+utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > r.width:
			flush()
			out.WriteByte('\n')
			r.pad(out, position)
			line = word
		default:
			line += " " + word
		}
	}
	flush()
}
