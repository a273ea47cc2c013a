// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package query evaluates queries of metrics APIs against sources. An Evaluator evaluates
// each Query at most once per interval, however many clients request or watch it, and
// protects sources that fail or are slow. A MetricQuery reads the Values of a metric from
// a Result.
//
// A request passes through evaluator.go (Query), cache.go (its entry), evaluation.go,
// circuitbreaker.go (may it start), sourcequeue.go (when does it start), sourcehealth.go (what
// its outcome says about the source), and values.go. Watches start at subscription.go.
package query

import (
	"cmp"
	"context"
	"time"
)

// Query is what a source evaluates. Equal queries have equal results, so it is a map key.
type Query struct {
	// Source is the name of the source in spec.sources.
	Source string
	// Expression in the source's own language, such as PromQL.
	Expression string
	// Interval between two evaluations.
	Interval time.Duration
	// Tenant is the namespace that the query is for; empty for one that is for the whole
	// cluster. It does not change the result: the query counts against the tenant's share of
	// the limits of an Evaluator.
	Tenant string
	// Requester is the namespace of the request for a query without Tenant, if any. It is no part
	// of the query, whose result is shared: evaluations, waiting requests, and cached queries that it
	// was the first to ask for, count against its share.
	Requester string
	// Declared says that a team wrote the query: a Source reads at most MaxDeclaredBytes of the
	// response, and labels of at most MaxLabelBytes.
	Declared bool
	// Batch says with which others the query may be evaluated together.
	Batch Batch
	// SampleTimes says whether the times of the samples are needed. An Evaluator asks for them, too, while
	// the query has subscribers.
	SampleTimes SampleTimes
	// Live says that a running evaluation is canceled once nobody waits for its result.
	Live bool
}

// SampleTimes says whether a Source returns the times of the samples that values are computed from.
type SampleTimes int

const (
	// SampleTimesNotNeeded gives all samples the instant of evaluation, which costs the source least.
	SampleTimesNotNeeded SampleTimes = iota
	// SampleTimesIfKnown gives samples the instant of evaluation only if the source does not know more.
	SampleTimesIfKnown
	// SampleTimesRequired fails the evaluation if the source does not know them.
	SampleTimesRequired
)

// size returns the bytes that a cached query counts as, without its result.
func (q *Query) size() int { return len(q.Expression) + len(q.Batch.text()) }

// split returns the query as the key of its result, and the tenant of its evaluation.
func (q Query) split() (key Query, requester string) {
	requester = cmp.Or(q.Tenant, q.Requester)
	q.Requester = ""
	return q, requester
}

// Source evaluates queries. Its errors are Failures, wrapped or not.
type Source interface {
	// Evaluate returns the result of a query as of an instant.
	Evaluate(ctx context.Context, q Query, at time.Time) (*Result, error)
}

// ConcurrentSource is a Source with its own limit of evaluations that run at the same time.
type ConcurrentSource interface {
	Source
	// Concurrency returns the limit, which does not change; 0 for the default.
	Concurrency() int
}

// ProbedSource is a Source that is also asked outside of evaluations, and so known to answer again before one succeeds.
type ProbedSource interface {
	Source
	// Answered returns when that succeeded last; zero for never.
	Answered() time.Time
}

// Querier returns the results of shared evaluations.
type Querier interface {
	// Query returns a result that was evaluated for an instant at most one interval, and the
	// duration of an evaluation, ago.
	Query(ctx context.Context, q Query) (*Result, error)
	// Subscribe evaluates the query once per interval until stop is called, which may be more
	// than once. receive is called with each new result or error, one call at a time and first
	// with the cached one; it must not block. If since is not zero, the first result is not
	// evaluated for an earlier instant: a query that replaces another one passes the time of
	// that one's last result.
	Subscribe(q Query, since time.Time, receive func(*Result, error)) (stop func())
}
