// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle decides what happens to the APIService of one version of a metrics API. It
// makes no request: the input of a decision is what was observed, and its output is the state of
// the version, and one action, or what it waits for, or which observation it needs first.
// docs/reference/version-states.md has the same table as transitions.
package lifecycle
