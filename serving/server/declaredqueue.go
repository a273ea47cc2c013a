// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"container/heap"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// queuedMetric is a declared metric that waits for its query.
type queuedMetric struct {
	// metric is its place in the report.
	metric int
	// cachedTime is the time of its cached result or error; zero if there is none.
	cachedTime time.Time
	// lastReport is the report that last queried it; zero for none.
	lastReport uint64
}

// before orders metrics by the age of their cached results, as a report may end before all were
// queried, and then by their last report, as some may never have a result.
func (t queuedMetric) before(u queuedMetric) int {
	return cmp.Or(t.cachedTime.Compare(u.cachedTime), cmp.Compare(t.lastReport, u.lastReport), cmp.Compare(t.metric, u.metric))
}

// tenant has the waiting metrics of a namespace.
type tenant struct {
	// waiting is in order, and never empty in a tenantQueue.
	waiting []queuedMetric
	// running counts its running queries, and index is its position in the heap; negative if
	// none of its metrics waits.
	running, index int
}

// tenantQueue orders namespaces by their running queries, the fewest first, so that none has more
// than another one that waits. It implements heap.Interface.
type tenantQueue []*tenant

func newTenantQueue(declared []rules.Declared, queued []queuedMetric) *tenantQueue {
	tenants := map[string]*tenant{}
	q := &tenantQueue{}
	for _, t := range queued {
		namespace := declared[t.metric].Namespace
		if tenants[namespace] == nil {
			tenants[namespace] = &tenant{}
			q.Push(tenants[namespace])
		}
		tenants[namespace].waiting = append(tenants[namespace].waiting, t)
	}
	for _, of := range *q {
		slices.SortFunc(of.waiting, queuedMetric.before)
	}
	heap.Init(q)
	return q
}

// next removes the metric whose turn it is, and counts it as running.
func (q *tenantQueue) next() (metric int, of *tenant) {
	of = (*q)[0]
	metric = of.waiting[0].metric
	of.waiting = of.waiting[1:]
	of.running++
	if len(of.waiting) == 0 {
		heap.Pop(q)
	} else {
		heap.Fix(q, 0)
	}
	return metric, of
}

// done counts a query of a namespace as ended.
func (q *tenantQueue) done(of *tenant) {
	of.running--
	if of.index >= 0 {
		heap.Fix(q, of.index)
	}
}

// Len implements heap.Interface.
func (q *tenantQueue) Len() int { return len(*q) }

// Less implements heap.Interface.
func (q *tenantQueue) Less(i, j int) bool {
	a, b := (*q)[i], (*q)[j]
	return cmp.Or(cmp.Compare(a.running, b.running), a.waiting[0].before(b.waiting[0])) < 0
}

// Swap implements heap.Interface.
func (q *tenantQueue) Swap(i, j int) {
	(*q)[i], (*q)[j] = (*q)[j], (*q)[i]
	(*q)[i].index, (*q)[j].index = i, j
}

// Push implements heap.Interface.
func (q *tenantQueue) Push(x any) {
	of, _ := x.(*tenant)
	of.index = len(*q)
	*q = append(*q, of)
}

// Pop implements heap.Interface.
func (q *tenantQueue) Pop() any {
	last := len(*q) - 1
	of := (*q)[last]
	of.index = -1
	*q = (*q)[:last]
	return of
}

// queryLog has the report that last ran each query. The zero value is ready to use.
type queryLog struct {
	mu          sync.Mutex
	reports     uint64
	lastReports map[query.Query]uint64
}

// beginReport returns the number of a new report on these metrics, and drops the queries of all others.
func (l *queryLog) beginReport(declared []rules.Declared) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := make(map[query.Query]uint64, len(declared))
	for i := range declared {
		q := declared[i].MetricQuery.Query
		if report, ok := l.lastReports[q]; ok {
			kept[q] = report
		}
	}
	l.lastReports = kept
	l.reports++
	return l.reports
}

// lastReport returns the report that last ran a query; zero for none.
func (l *queryLog) lastReport(q query.Query) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastReports[q]
}

func (l *queryLog) record(q query.Query, report uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastReports[q] = max(l.lastReports[q], report)
}

// cachedTime returns the time of the cached result or error of a query; zero if there is none.
func cachedTime(evaluator *query.Evaluator, q query.Query) time.Time {
	answer, err, _ := evaluator.Cached(q)
	var evaluationErr *query.EvaluationError
	switch {
	case errors.As(err, &evaluationErr):
		return evaluationErr.Time
	case answer != nil:
		return answer.Time
	}
	return time.Time{}
}
