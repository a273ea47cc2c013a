// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server puts the metrics API groups into one generic API server: it
// reads the flags, follows the MetricsBackend, feeds the store from informers
// and kubelets, and decides when a pod may take traffic.
package server
