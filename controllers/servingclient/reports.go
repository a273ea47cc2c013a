// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingclient

import (
	"fmt"
	"strings"
)

// WithPods adds to a message how many of all serving pods report it, unless all do.
func WithPods(message string, n, all int) string {
	if n >= all {
		return message
	}
	return fmt.Sprintf("%s (as %d of %d serving pods see it)", strings.TrimRight(message, ". "), n, all)
}

// Clamp returns a number that a pod reported within the bounds of a status field.
func Clamp(n int) int32 { return int32(min(max(n, 0), 1<<30)) } //nolint:gosec // bounded
