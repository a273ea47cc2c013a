// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Conditions of CustomMetrics and ExternalMetrics besides Ready, Reconciling and
// Stalled. Each is present, and True, only while it is so.
const (
	// ConditionFallback: spec.fallback stands in for the values.
	ConditionFallback = "Fallback"
	// ConditionCollision: something else makes the same metric.
	ConditionCollision = "Collision"
)

// Reasons of conditions of CustomMetrics and ExternalMetrics. Others are those of the
// source's failure or of what cannot be compiled, as the serving pods say.
const (
	// ReasonCollision: something else makes the same metric.
	ReasonCollision = "Collision"
	// ReasonNoBackend: no MetricsBackend serves the metric's API.
	ReasonNoBackend = "NoBackend"
	// ReasonInUse: the fallback is in use.
	ReasonInUse = "InUse"
	// ReasonFailing: the serving pods say no reason.
	ReasonFailing = "Failing"
)
