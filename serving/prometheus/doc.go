// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prometheus is the source behind a server with Prometheus' HTTP API: it
// evaluates PromQL at an instant, says which series there are, and how the server
// does. Nothing that a server answers can hurt more than the one question: answers
// are bounded before they are decoded, redirects are not followed, and every error
// is a query.Failure in the server's own words.
package prometheus
