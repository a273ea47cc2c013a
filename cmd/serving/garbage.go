// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "runtime/debug"

// gcPercent is the default of GOGC. With Go's own, 100, thousands of watches keep as much
// garbage as memory in use; serving allocates little once they are open, so collecting more
// often costs little CPU. Prometheus sets 75.
const gcPercent = 50

// lowerGCPercent sets gcPercent unless GOGC is set. GOMEMLIMIT applies in either case, and makes
// collections more frequent.
func lowerGCPercent(getenv func(string) string) {
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
