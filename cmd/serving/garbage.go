// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "runtime/debug"

// gcPercent of the live heap and stacks may be garbage before it is collected.
// Go's default of 100 keeps for each of thousands of watches as much garbage as
// memory that is in use; serving allocates little once they are open, so that
// collecting more often costs little CPU. Prometheus lowers it likewise, to 75.
const gcPercent = 50

// lowerGCPercent sets gcPercent unless whoever runs the process has set GOGC.
// GOMEMLIMIT is in force all the same: it makes collections more frequent still.
func lowerGCPercent(getenv func(string) string) {
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
