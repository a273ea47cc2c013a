// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package exit holds the exit codes of kubectl-metrics, so that scripts can tell
// an answer that is no from a question that was not answered.
package exit

import "errors"

// Exit codes.
const (
	// OK: the command did, or found, what was asked for.
	OK = 0
	// NotMet: a check failed, or what was waited for did not happen in time.
	NotMet = 1
	// NotRun: the question could not be answered: bad flags, no connection, or a
	// permission that is missing.
	NotRun = 2
)

// ErrNotMet ends a command with exit code NotMet; what it printed explains it.
var ErrNotMet = errors.New("not met")

// Code is the exit code of a command that returned err.
func Code(err error) int {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, ErrNotMet):
		return NotMet
	}
	return NotRun
}
