// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

const (
	// The alternate screen preserves the former content.
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// screen is a terminal that shows frames.
type screen struct {
	out   io.Writer
	fd    int
	color bool
	// keys is nil where the input is no terminal.
	keys    <-chan key
	restore func()
}

// openScreen switches the terminal to raw mode and the alternate screen until close.
func openScreen(streams genericiooptions.IOStreams, fd int) (*screen, error) {
	s := &screen{out: streams.Out, fd: fd, color: printers.AllowsColorOutput(streams.Out), restore: func() {}}
	if inFd, ok := output.Terminal(streams.In); ok {
		before, err := term.MakeRaw(inFd)
		if err != nil {
			return nil, fmt.Errorf("take the terminal: %w", err)
		}
		s.restore = func() { _ = term.Restore(inFd, before) }
		s.keys = readKeys(streams.In)
	}
	if _, err := io.WriteString(s.out, enterScreen); err != nil {
		s.restore()
		return nil, fmt.Errorf("write to the terminal: %w", err)
	}
	return s, nil
}

func (s *screen) close() {
	_, _ = io.WriteString(s.out, leaveScreen)
	s.restore()
}

// size returns the current size, or 80x24 if it is unknown.
func (s *screen) size() (width, height int) {
	width, height, err := term.GetSize(s.fd)
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// show replaces the screen in one write, so that it does not flicker.
func (s *screen) show(lines []output.Cell) error {
	if _, err := io.WriteString(s.out, render(lines, s.color)); err != nil {
		return fmt.Errorf("write to the terminal: %w", err)
	}
	return nil
}

// render returns what replaces the lines on the screen, of which there is at least one.
func render(lines []output.Cell, color bool) string {
	var out strings.Builder
	out.WriteString(home)
	for i, l := range lines {
		if i > 0 {
			out.WriteString("\r\n")
		}
		// After a text as wide as the terminal, the cursor is still on its last character.
		if i == len(lines)-1 {
			out.WriteString(clearBelow)
		} else {
			out.WriteString(clearLine)
		}
		out.WriteString(l.Tone.Colorize(l.Text, color))
	}
	return out.String()
}

// readKeys reads until the input ends. Its goroutine cannot be stopped before.
func readKeys(in io.Reader) <-chan key {
	keys := make(chan key)
	go func() {
		defer close(keys)
		typed := make([]byte, 64)
		for {
			n, err := in.Read(typed)
			for _, k := range keysOf(string(typed[:n])) {
				keys <- k
			}
			if err != nil {
				return
			}
		}
	}()
	return keys
}

// key is a command of the user.
type key string

const (
	keyQuit     key = "quit"
	keyCPU      key = "cpu"
	keyMemory   key = "memory"
	keyName     key = "name"
	keyUp       key = "up"
	keyDown     key = "down"
	keyPageUp   key = "page up"
	keyPageDown key = "page down"
	keyHome     key = "home"
	keyEnd      key = "end"
)

// sequences are the bytes of keys, longer ones before their prefixes.
var sequences = []struct {
	bytes string
	key   key
}{
	{"\x1b[A", keyUp}, {"\x1bOA", keyUp}, {"\x1b[B", keyDown}, {"\x1bOB", keyDown},
	{"\x1b[5~", keyPageUp}, {"\x1b[6~", keyPageDown},
	{"\x1b[H", keyHome}, {"\x1bOH", keyHome}, {"\x1b[1~", keyHome},
	{"\x1b[F", keyEnd}, {"\x1bOF", keyEnd}, {"\x1b[4~", keyEnd},
	{"q", keyQuit}, {"\x03", keyQuit}, {"\x04", keyQuit}, // Ctrl-C and Ctrl-D, which a raw terminal does not act on
	{"c", keyCPU}, {"m", keyMemory}, {"n", keyName},
	{"k", keyUp}, {"j", keyDown}, {"b", keyPageUp}, {" ", keyPageDown}, {"g", keyHome}, {"G", keyEnd},
}

// keysOf returns the keys in the input, without unknown ones.
func keysOf(typed string) []key {
	var keys []key
next:
	for typed != "" {
		for _, s := range sequences {
			if rest, ok := strings.CutPrefix(typed, s.bytes); ok {
				keys, typed = append(keys, s.key), rest
				continue next
			}
		}
		typed = typed[unknownLength(typed):]
	}
	return keys
}

// unknownLength returns the length of the unknown key at the start of typed: an escape
// sequence ends with its first letter or tilde.
func unknownLength(typed string) int {
	if !strings.HasPrefix(typed, "\x1b[") {
		return 1
	}
	if i := strings.IndexFunc(typed[2:], func(c rune) bool { return c >= '@' && c <= '~' }); i >= 0 {
		return 2 + i + 1
	}
	return len(typed)
}
