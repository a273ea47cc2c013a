// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

const (
	// successTime and failureTime are for how long the outcome of a query counts at least, and
	// two or four of its intervals: autoscalers repeat it earlier, unless it is held back.
	successTime = time.Minute
	failureTime = 2 * successTime
	// maxFailed limits the failed queries that are kept: as many make a source unhealthy.
	maxFailed = 3
)

// queryHealth tracks whether the queries of clients succeed. A probe says less: many servers
// evaluate vector(1) without their storage.
type queryHealth struct {
	// succeeded is the newest query that did. It shows that the source works until
	// succeededUntil, unless it fails before that.
	succeeded      query.Query
	succeededUntil time.Time
	// failed are queries that failed with no success since, with until when that counts, and
	// failure is the newest one.
	failed  map[query.Query]time.Time
	failure *query.Failure
}

func (h *queryHealth) record(q query.Query, f *query.Failure, now time.Time) {
	switch {
	case f == nil:
		*h = queryHealth{succeeded: q, succeededUntil: now.Add(max(successTime, 2*q.Interval))}
		return
	case f.Reason.SourceAnswered():
		return
	}
	if q == h.succeeded {
		h.succeededUntil = time.Time{}
	}
	if h.failed == nil {
		h.failed = map[query.Query]time.Time{}
	}
	h.dropOld(now)
	if _, known := h.failed[q]; known || len(h.failed) < maxFailed {
		h.failed[q] = now.Add(max(failureTime, 4*q.Interval))
	}
	h.failure = f
}

func (h *queryHealth) dropOld(now time.Time) {
	maps.DeleteFunc(h.failed, func(_ query.Query, until time.Time) bool { return until.Before(now) })
}

// succeeds reports whether a query has succeeded lately.
func (h *queryHealth) succeeds(now time.Time) bool { return now.Before(h.succeededUntil) }

// failing returns the newest failure if the source fails different queries and none succeeds; nil
// otherwise. Two queries that one namespace declares may both be wrong, three are enough.
func (h *queryHealth) failing(now time.Time) *query.Failure {
	h.dropOld(now)
	authors := sets.Set[query.Query]{}
	for q := range h.failed {
		if q.Declared {
			q = query.Query{Tenant: q.Tenant, Declared: true}
		}
		authors.Insert(q)
	}
	if h.succeeds(now) || len(h.failed) < maxFailed && authors.Len() < 2 {
		return nil
	}
	return h.failure
}
