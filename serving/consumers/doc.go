// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package consumers records which clients ask for which version of an API: the
// family of the user agent and the user name, by day. The operator asks for it
// before it takes a version away.
//
// Everything in a record comes from clients: it is bounded in number and in
// length, and holds printable characters alone.
package consumers
