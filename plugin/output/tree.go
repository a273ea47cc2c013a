// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package output prints the results of commands, as trees and aligned columns or as JSON
// and YAML, and defines their exit codes.
package output

import (
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/printers"
)

// Tone is the meaning of a cell, which a terminal shows as a color.
type Tone int

// Tones.
const (
	Plain Tone = iota
	Good
	Bad
	Warning
	Faint
	Strong
)

var colors = map[Tone]string{
	Good: "\x1b[32m", Bad: "\x1b[31m", Warning: "\x1b[33m", Faint: "\x1b[2m", Strong: "\x1b[1m",
}

// Colorize returns text in the color of the tone, if color is set.
func (t Tone) Colorize(text string, color bool) string {
	if code := colors[t]; color && code != "" && text != "" {
		return code + text + "\x1b[0m"
	}
	return text
}

// Cell is the text of a column.
type Cell struct {
	Text string
	Tone Tone
	// Whole text is not wrapped, such as a command to copy.
	Whole bool
}

// NextCommand returns the cell of the next command to type.
func NextCommand(command string) Cell {
	return Cell{Text: "next: " + command, Tone: Strong, Whole: true}
}

// Text returns a plain cell.
func Text(text string) Cell { return Cell{Text: text} }

// Node is a row of cells with rows below it.
type Node struct {
	Cells    []Cell
	Children []*Node
}

// New returns a node.
func New(cells ...Cell) *Node { return &Node{Cells: cells} }

// Add adds a row below n and returns it.
func (n *Node) Add(cells ...Cell) *Node {
	child := New(cells...)
	n.Children = append(n.Children, child)
	return child
}

// Trees writes trees. Rows below one node are aligned with each other, and wrapped at the width
// of a terminal.
func Trees(w io.Writer, roots ...*Node) error {
	var out strings.Builder
	p := printerOf(w)
	for i, root := range roots {
		if i > 0 {
			out.WriteByte('\n')
		}
		row{printer: p, cells: root.Cells}.write(&out)
		p.children(&out, root.Children, "")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// Rows writes rows in aligned columns, wrapped at the width of a terminal.
func Rows(w io.Writer, rows ...[]Cell) error {
	var out strings.Builder
	p, widths := printerOf(w), widthsOf(rows)
	for _, cells := range rows {
		row{printer: p, widths: widths, cells: cells}.write(&out)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// printer has the properties of the output.
type printer struct {
	color bool
	// width is that of a terminal; 0 for other outputs.
	width int
}

func printerOf(w io.Writer) printer {
	return printer{color: printers.AllowsColorOutput(w), width: terminalWidth(w)}
}

func (p printer) children(out *strings.Builder, children []*Node, prefix string) {
	var rows [][]Cell
	for _, child := range children {
		rows = append(rows, child.Cells)
	}
	widths := widthsOf(rows)
	for i, child := range children {
		branch, below := "├── ", "│   "
		if i == len(children)-1 {
			branch, below = "└── ", "    "
		}
		row{printer: p, widths: widths, first: prefix + branch, below: prefix + below, cells: child.Cells}.write(out)
		p.children(out, child.Children, prefix+below)
	}
}

// widthsOf returns the widths of columns without the last cell of each row, which is often
// a sentence.
func widthsOf(rows [][]Cell) []int {
	var widths []int
	for _, row := range rows {
		for column, cell := range row {
			if column == len(widths) {
				widths = append(widths, 0)
			}
			if column < len(row)-1 {
				widths[column] = max(widths[column], utf8.RuneCountInString(Line(cell.Text)))
			}
		}
	}
	return widths
}

// Line returns text from the cluster as one line that cannot control the terminal.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, printers.EscapeTerminal(text))
}

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
