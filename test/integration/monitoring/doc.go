// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitoring tests config/monitoring with the tools of a real Prometheus.
package monitoring
