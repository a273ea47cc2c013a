// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prometheus tests serving/prometheus against a real Prometheus.
package prometheus
