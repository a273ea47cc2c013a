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

// turn is a declared metric that waits to be asked for.
type turn struct {
	// metric is its place in the report.
	metric int
	// known is the time of what is known of it; the zero time where nothing is.
	known time.Time
	// asked is the report in which it was last asked for; zero for none.
	asked uint64
}

// before says that a metric comes first of two: a report may end before all were asked
// for, and then again those that wait longest for news come first. Of those of which
// nothing is known, one may fail to become known however often it is asked for.
func (t turn) before(u turn) int {
	return cmp.Or(t.known.Compare(u.known), cmp.Compare(t.asked, u.asked), cmp.Compare(t.metric, u.metric))
}

// team is what waits of a namespace.
type team struct {
	// waiting is in order, and never empty in a teamQueue.
	waiting []turn
	// places is how many of its metrics are being asked for, and index where it is in
	// the queue; negative where nothing waits any more.
	places, index int
}

// teamQueue gives places to namespaces: to the one that has the fewest, of those that
// wait. So none has more than it leaves to others while others wait, whatever its metrics
// take. It implements heap.Interface, for itself.
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

// take gives a place to the metric whose turn it is.
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

// leave takes a place back.
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

// askedLog is which report last asked which question. Its zero value is usable.
type askedLog struct {
	mu      sync.Mutex
	reports uint64
	asked   map[query.Query]uint64
}

// begin returns the number of a new report, about these metrics. It forgets the questions
// of all others.
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

// last returns the report that last asked a question; zero for none.
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

// knownSince returns the time of what is known of a question; the zero time where
// nothing is.
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
