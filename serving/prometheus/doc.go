// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prometheus queries servers with Prometheus' HTTP API: it evaluates PromQL at an
// instant, looks up series, and tracks the server's health. No response affects more than its
// own query: responses are bounded before they are decoded, redirects are not followed, and
// every error is a query.Failure with the server's message.
package prometheus
