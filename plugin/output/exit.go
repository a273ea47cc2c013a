// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package output

import "errors"

// Exit codes, so that scripts can distinguish a negative result from a failure.
const (
	// OK: the command succeeded, and its checks passed.
	OK = 0
	// NotMet: a check failed, or a wait timed out.
	NotMet = 1
	// NotRun: the command failed: bad flags, no connection, or a missing permission.
	NotRun = 2
	// Incomplete: the output is written, and lacks something that the command has warned of.
	Incomplete = 3
)

// ErrNotMet ends a command with exit code NotMet; the command has printed the reason.
var ErrNotMet = errors.New("not met")

// ErrIncomplete ends a command with exit code Incomplete; the command has printed the warnings.
var ErrIncomplete = errors.New("incomplete")

// ExitCode returns the exit code of a command that returned err.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, ErrNotMet):
		return NotMet
	case errors.Is(err, ErrIncomplete):
		return Incomplete
	}
	return NotRun
}
