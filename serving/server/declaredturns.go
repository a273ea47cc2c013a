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

// turn is a declared metric that waits for its query.
type turn struct {
	// metric is its place in the report.
	metric int
	// known is the time of its cached result or error; zero if there is none.
	known time.Time
	// asked is the report that last queried it; zero for none.
	asked uint64
}

// before orders metrics by the age of their cached results, as a report may end before all were
// queried, and then by their last report, as some may never have a result.
func (t turn) before(u turn) int {
	return cmp.Or(t.known.Compare(u.known), cmp.Compare(t.asked, u.asked), cmp.Compare(t.metric, u.metric))
}

// team has the waiting metrics of a namespace.
type team struct {
	// waiting is in order, and never empty in a teamQueue.
	waiting []turn
	// places counts its running queries, and index is its position in the heap; negative if
	// none of its metrics waits.
	places, index int
}

// teamQueue orders namespaces by their running queries, the fewest first, so that none has more
// than another one that waits. It implements heap.Interface.
type teamQueue []*team

func newTeamQueue(declared []rules.Declared, turns []turn) *teamQueue {
	teams := map[string]*team{}
	q := &teamQueue{}
	for _, t := range turns {
		namespace := declared[t.metric].Namespace
		if teams[namespace] == nil {
			teams[namespace] = &team{}
			q.Push(teams[namespace])
		}
		teams[namespace].waiting = append(teams[namespace].waiting, t)
	}
	for _, of := range *q {
		slices.SortFunc(of.waiting, turn.before)
	}
	heap.Init(q)
	return q
}

// take removes the metric whose turn it is, and counts it as running.
func (q *teamQueue) take() (metric int, of *team) {
	of = (*q)[0]
	metric = of.waiting[0].metric
	of.waiting = of.waiting[1:]
	of.places++
	if len(of.waiting) == 0 {
		heap.Pop(q)
	} else {
		heap.Fix(q, 0)
	}
	return metric, of
}

// leave counts a query of a namespace as ended.
func (q *teamQueue) leave(of *team) {
	of.places--
	if of.index >= 0 {
		heap.Fix(q, of.index)
	}
}

// Len implements heap.Interface.
func (q *teamQueue) Len() int { return len(*q) }

// Less implements heap.Interface.
func (q *teamQueue) Less(i, j int) bool {
	a, b := (*q)[i], (*q)[j]
	return cmp.Or(cmp.Compare(a.places, b.places), a.waiting[0].before(b.waiting[0])) < 0
}

// Swap implements heap.Interface.
func (q *teamQueue) Swap(i, j int) {
	(*q)[i], (*q)[j] = (*q)[j], (*q)[i]
	(*q)[i].index, (*q)[j].index = i, j
}

// Push implements heap.Interface.
func (q *teamQueue) Push(x any) {
	of, _ := x.(*team)
	of.index = len(*q)
	*q = append(*q, of)
}

// Pop implements heap.Interface.
func (q *teamQueue) Pop() any {
	last := len(*q) - 1
	of := (*q)[last]
	of.index = -1
	*q = (*q)[:last]
	return of
}

// askedLog has the report that last ran each query. The zero value is ready to use.
type askedLog struct {
	mu      sync.Mutex
	reports uint64
	asked   map[query.Query]uint64
}

// begin returns the number of a new report on these metrics, and drops the queries of all others.
func (l *askedLog) begin(declared []rules.Declared) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := make(map[query.Query]uint64, len(declared))
	for i := range declared {
		q := declared[i].MetricQuery.Query
		if report, ok := l.asked[q]; ok {
			kept[q] = report
		}
	}
	l.asked = kept
	l.reports++
	return l.reports
}

// last returns the report that last ran a query; zero for none.
func (l *askedLog) last(q query.Query) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked[q]
}

func (l *askedLog) note(q query.Query, report uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[q] = max(l.asked[q], report)
}

// knownSince returns the time of the cached result or error of a query; zero if there is none.
func knownSince(evaluator *query.Evaluator, q query.Query) time.Time {
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
