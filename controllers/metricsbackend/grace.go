// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import "time"

// Grace periods: how long a failure must last before the operator reports it or
// acts on it.
const (
	// failuresToReport is the number of failed passes in a row before the conditions
	// report the error. Most errors are gone at the next try.
	failuresToReport = 3
	// servingGrace is for pods and endpoints that do not answer, or whose requests fail.
	servingGrace = 20 * time.Second
	// requestGrace is for requests through kube-apiserver: one fails with each restart
	// of a kube-apiserver.
	requestGrace = 15 * time.Second
	// sourcesGrace is for kubelets, sources and rules: in a large cluster some kubelet
	// is always restarting.
	sourcesGrace = 45 * time.Second
	// messageGrace is how long a message stays in the status when only its text changes:
	// text from other programs may differ with each failure.
	messageGrace = 5 * time.Minute
	// previousOwnerGrace is for the previous owner of an APIService that is restored: its
	// pods may be restarting.
	previousOwnerGrace = 30 * time.Second
	// adoptionGrace is for an APIService that spec.adoption IfUnavailable takes over: a
	// pod of its implementation may be restarting.
	adoptionGrace = time.Minute
	// adoptionTrial is how long requests through kube-apiserver must have succeeded
	// before an adoption is final, and adoptionFailures how many must fail in a row
	// before it is reverted. They are sent every adoptionRecheck.
	adoptionTrial    = 15 * time.Second
	adoptionRecheck  = 2 * time.Second
	adoptionFailures = 3
	// successorTimeout is how long a deleted backend keeps its APIServices for another
	// backend to take over, counted from the deletion timestamp. A successor that is
	// ready takes over soon after endpointDelay.
	successorTimeout = 30 * time.Second
	// claimTimeout is how long a version must not have been available before the claim of an
	// older backend on it lapses: longer than a rollout of pods whose first readiness waits
	// for rates.
	claimTimeout = 10 * time.Minute
	// transientRecheck is when a failure within its grace period is checked again.
	transientRecheck = 5 * time.Second
)

// A version is retired when no ready pod answers its requests (5xx, no answer in
// time, or a malformed one; 404 counts as not served) for retireGrace and in
// retireProbes probes in a row, and registered again after recoveryTime.
const (
	retireGrace  = time.Minute
	retireProbes = 4
	// retireGraceAlone replaces retireGrace while clients have no other version to use.
	retireGraceAlone = 10 * time.Minute
	// recoveryTime is how long all pods must answer without interruption. It doubles
	// with each retirement up to maxRecoveryTime, so that an unstable version does not
	// flap in discovery.
	recoveryTime    = time.Minute
	maxRecoveryTime = 32 * time.Minute
	// recoveryTimeAlone replaces it while clients have no other version to use.
	recoveryTimeAlone = 30 * time.Second
)

// endpointDelay is how long a Service must have been ready before an APIService moves to
// it: kube-proxy may learn of endpoints after the operator.
const endpointDelay = 10 * time.Second
