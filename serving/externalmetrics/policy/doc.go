// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy decides which external metrics may be read, by the
// ExternalMetricsPolicies of a cluster: the access rules that the External Metrics
// API proposal sketches. It says no wherever it is in doubt.
package policy
