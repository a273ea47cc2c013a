// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import "time"

// Limits of a declared metric, whose author is not the administrator. A Source enforces them; rules
// have the limits of the source.
const (
	// MaxDeclaredBytes limits the response to the metric's query.
	MaxDeclaredBytes = 1 << 20
	// MaxLabelBytes limits the name, and the value, of a label in the response.
	MaxLabelBytes = 4 << 10
)

const (
	// maxSamples limits the samples of a result; a longer one fails with ReasonTooLarge.
	maxSamples = 50_000
	// idleTime is for how long an unused query stays cached, at least.
	idleTime = 5 * time.Minute
	// maxResultAge is the age up to which the last result of a failing source is kept: the
	// longest that a fallback may use.
	maxResultAge = 24 * time.Hour
)

// limits of an Evaluator, which tenants share by package fairshare.
type limits struct {
	// concurrency limits the running evaluations of one source that sets no limit of its own.
	concurrency int
	// maxQueued limits the queries that wait for one source; more fail with
	// ReasonOverloaded.
	maxQueued int
	// maxWaiting limits the requests that wait for evaluations of any source.
	maxWaiting int
	// maxCachedBytes limits the bytes of all cached results and their expressions. Queries with
	// subscribers are never evicted, but fail with ReasonTooLarge if their results do not fit.
	maxCachedBytes int
	// maxQueries limits the cached queries. Queries with subscribers count, and are never
	// rejected.
	maxQueries int
}

func newLimits(maxWaiting int) *limits {
	return &limits{
		concurrency: 10, // with two replicas Prometheus' own limit
		maxQueued:   1000, maxWaiting: maxWaiting, maxCachedBytes: 320 << 20, maxQueries: 10_000,
	}
}
