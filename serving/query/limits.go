// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"time"
)

// Limits of a declared metric, whose author is not the administrator. A Source enforces them; rules
// have the limits of the source.
const (
	// MaxDeclaredBytes limits the response to the metric's query.
	MaxDeclaredBytes = 1 << 20
	// MaxLabelBytes limits the name, and the value, of a label in the response.
	MaxLabelBytes = 4 << 10
)

// Limits of an Evaluator. Zero means the default.
//
// Tenants share each limit by package fairshare.
type Limits struct {
	// Concurrency limits the running evaluations of one source. Default: 10, which
	// with two replicas is Prometheus' own limit.
	Concurrency int
	// MaxQueued limits the queries that wait for one source; more fail with
	// ReasonOverloaded. Default: 1000.
	MaxQueued int
	// MaxWaiting limits the requests that wait for evaluations of any source; more fail
	// with ReasonOverloaded at once, so that a source that hangs does not exhaust the request
	// limit of this server. Default: 200, half of what the API server handles at a time.
	MaxWaiting int
	// MaxSamples limits the samples of a result; a longer one fails with ReasonTooLarge.
	// Default: 50000.
	MaxSamples int
	// MaxCachedBytes limits the bytes of all cached results and their expressions. Queries with
	// subscribers are never evicted, but fail with ReasonTooLarge if their results do not fit. Default: 320Mi.
	MaxCachedBytes int
	// MaxQueries limits the cached queries. Queries with subscribers count, and are never
	// rejected. Default: 10000.
	MaxQueries int
	// IdleTime is for how long an unused query stays cached, at least. Default: 5m.
	IdleTime time.Duration
	// MaxResultAge is the age up to which the last result of a failing source is kept.
	// Default: 24h, the longest that a fallback may use.
	MaxResultAge time.Duration
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Concurrency:    cmp.Or(l.Concurrency, 10),
		MaxQueued:      cmp.Or(l.MaxQueued, 1000),
		MaxWaiting:     cmp.Or(l.MaxWaiting, 200),
		MaxSamples:     cmp.Or(l.MaxSamples, 50_000),
		MaxCachedBytes: cmp.Or(l.MaxCachedBytes, 320<<20),
		MaxQueries:     cmp.Or(l.MaxQueries, 10_000),
		IdleTime:       cmp.Or(l.IdleTime, 5*time.Minute),
		MaxResultAge:   cmp.Or(l.MaxResultAge, 24*time.Hour),
	}
}
