// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package top is `kubectl metrics top`: usage of nodes or pods, once, or as a table
// that lives by a watch.
//
// Changes of the client become samples (source.go), which a table keeps with their
// history (table.go). What a terminal shows of it is a pure function of the table,
// the terminal's size and the time (frame.go, columns.go); where there is no
// terminal each change is a line (lines.go).
package top
