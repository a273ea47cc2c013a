// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import "strings"

// key is what a user asks of the table.
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

// sequences are what terminals send for keys, the longer before their beginnings.
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

// keysOf reads keys from what was typed, and passes over what it does not know.
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

// unknownLength is the length of the key that typed begins with: an escape sequence
// ends with its first letter or tilde.
func unknownLength(typed string) int {
	if !strings.HasPrefix(typed, "\x1b[") {
		return 1
	}
	for i := 2; i < len(typed); i++ {
		if c := typed[i]; c >= '@' && c <= '~' {
			return i + 1
		}
	}
	return len(typed)
}
