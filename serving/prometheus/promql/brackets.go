// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import "strings"

// closed says whether each bracket and quote of an expression is closed. What is not is
// wrong in each of the languages that servers speak.
func closed(expression string) bool {
	var open []byte
	for i := 0; i < len(expression); i++ {
		switch c := expression[i]; c {
		case '(', '[', '{':
			open = append(open, c)
		case ')', ']', '}':
			if len(open) == 0 || open[len(open)-1] != opening[c] {
				return false
			}
			open = open[:len(open)-1]
		case '#':
			end := strings.IndexByte(expression[i:], '\n')
			if end < 0 {
				return len(open) == 0
			}
			i += end
		case '"', '\'', '`':
			for i++; i < len(expression) && expression[i] != c; i++ {
				if expression[i] == '\\' && c != '`' {
					i++
				}
			}
			if i >= len(expression) {
				return false
			}
		}
	}
	return len(open) == 0
}

var opening = map[byte]byte{')': '(', ']': '[', '}': '{'}
