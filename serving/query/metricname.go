// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import "strings"

// EscapedSlash stands for a slash in the name of an external metric, which a path cannot hold (External Metrics API
// proposal).
const EscapedSlash = `\|`

// EscapeName returns the name of an external metric as paths, roles and HorizontalPodAutoscalers have it.
func EscapeName(metric string) string { return strings.ReplaceAll(metric, "/", EscapedSlash) }

// UnescapeName returns the name of an external metric as it is.
func UnescapeName(metric string) string { return strings.ReplaceAll(metric, EscapedSlash, "/") }

// nameUnit is the length of a name in JSON from which on a metric counts as several in a list. Beside
// its name a metric takes up to 160 bytes of the aggregated discovery document: valueapi.MaxDiscovered
// custom metrics, in two versions, and as many external ones are within 1 MiB.
const nameUnit = 44

// ListCost returns how many metrics one with this name counts as in a list.
func ListCost(name string) int {
	size := len(name) + len(`""`)
	for i := range len(name) {
		switch name[i] {
		case '<', '>', '&', '"', '\\', 0xe2: // the last begins U+2028 and U+2029, and others
			size += len(`\u003c`) - 1
		}
	}
	return 1 + size/nameUnit
}
