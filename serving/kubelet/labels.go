// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

// maxNameLength is the longest name of a Kubernetes object.
const maxNameLength = 253

// containerLabels are the three that name a container, as they stand in the line. None
// of their valid values has a character that is escaped, so nothing is
// unescaped: a value with an escape is refused by validName.
type containerLabels struct {
	container, pod, namespace []byte
}

// parseLabels parses from the opening brace. end is behind the closing one.
func parseLabels(b []byte) (l containerLabels, end int, ok bool) {
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

// set keeps the value where the name is one of the three; false when it was set
// before.
func (l *containerLabels) set(name, value []byte) bool {
	var field *[]byte
	switch string(name) {
	case "container":
		field = &l.container
	case "pod":
		field = &l.pod
	case "namespace":
		field = &l.namespace
	default:
		return true
	}
	if *field != nil {
		return false
	}
	*field = value
	return true
}

// quoteEnd returns the index of the closing quote of a value.
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

// validName says whether a label's value can be the name of a namespace, a pod
// or a container. Container names are served as they are, so whatever is in them
// would reach clients.
func validName(b []byte) bool {
	if len(b) == 0 || len(b) > maxNameLength {
		return false
	}
	for _, c := range b {
		if !isDigit(c) && c != '-' && c != '.' && c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}
