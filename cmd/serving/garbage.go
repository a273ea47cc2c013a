// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "runtime/debug"

// gcPercent is the default of GOGC. With Go's own, 100, serving keeps as much garbage as memory
// in use, and it allocates little, so that collecting more often costs little: with 1,000 nodes
// 30 instead of 50 takes 14 MiB less and at most 1 mCPU more. Prometheus sets 75.
const gcPercent = 30

// lowerGCPercent sets gcPercent unless GOGC is set. GOMEMLIMIT applies in either case, and makes
// collections more frequent.
func lowerGCPercent(getenv func(string) string) {
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
