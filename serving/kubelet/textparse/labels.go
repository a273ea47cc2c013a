// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package textparse

// Labels are the labels that identify a container, as written in the line. Values
// are not unescaped: no valid name has a character that needs an escape.
type Labels struct {
	Container, Pod, Namespace []byte
}

// ParseLabels parses labels that begin with the opening brace. end is the index
// after the closing brace.
func ParseLabels(b []byte) (l Labels, end int, ok bool) {
	i := 1
	for {
		i = skipBlanks(b, i)
		if i < len(b) && b[i] == '}' {
			return l, i + 1, true
		}
		nameStart := i
		for i < len(b) && isLabelName(b[i], i == nameStart) {
			i++
		}
		name := b[nameStart:i]
		if i = skipBlanks(b, i); len(name) == 0 || i >= len(b) || b[i] != '=' {
			return l, 0, false
		}
		if i = skipBlanks(b, i+1); i >= len(b) || b[i] != '"' {
			return l, 0, false
		}
		valueStart := i + 1
		if i, ok = quoteEnd(b, valueStart); !ok {
			return l, 0, false
		}
		if !l.set(name, b[valueStart:i]) {
			return l, 0, false
		}
		i = skipBlanks(b, i+1)
		switch {
		case i < len(b) && b[i] == ',':
			i++
		case i < len(b) && b[i] == '}':
		default:
			return l, 0, false
		}
	}
}

// set sets the value of one of the three labels and ignores others. It returns
// false for a duplicate.
func (l *Labels) set(name, value []byte) bool {
	var field *[]byte
	switch string(name) {
	case "container":
		field = &l.Container
	case "pod":
		field = &l.Pod
	case "namespace":
		field = &l.Namespace
	default:
		return true
	}
	if *field != nil {
		return false
	}
	*field = value
	return true
}

// quoteEnd returns the index of the closing quote of a value that begins at i.
func quoteEnd(b []byte, i int) (int, bool) {
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i, true
		case '\\':
			i++
			if i >= len(b) || b[i] != '\\' && b[i] != '"' && b[i] != 'n' {
				return 0, false
			}
		}
	}
	return 0, false
}

func skipBlanks(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t') {
		i++
	}
	return i
}

func isLabelName(c byte, first bool) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || !first && isDigit(c)
}
