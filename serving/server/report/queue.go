// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// pendingQuery is a declared metric that a report has yet to query.
type pendingQuery struct {
	// metric is its index in the report.
	metric int
	// resultTime is the time of its cached result; zero for none.
	resultTime time.Time
	// lastReport is the number of the report that queried it last; zero for none.
	lastReport uint64
}

// compare orders queries by the age of their result, the oldest first, since a report may
// end before all are queried. A metric may stay without a result however often it is
// queried: those take turns.
func (p pendingQuery) compare(q pendingQuery) int {
	return cmp.Or(p.resultTime.Compare(q.resultTime), cmp.Compare(p.lastReport, q.lastReport), cmp.Compare(p.metric, q.metric))
}

// namespaceQueue holds the pending queries of a namespace, in order.
type namespaceQueue struct {
	pending []pendingQuery
	// running counts its running queries.
	running int
}

// fairQueue serves the namespace with the fewest running queries first, so that slow
// queries of one namespace do not delay others. It has the namespaces with pending queries.
type fairQueue []*namespaceQueue

func newFairQueue(declared []rules.Declared, pending []pendingQuery) fairQueue {
	slices.SortFunc(pending, pendingQuery.compare)
	namespaces := map[string]*namespaceQueue{}
	var q fairQueue
	for _, p := range pending {
		namespace := declared[p.metric].Namespace
		if namespaces[namespace] == nil {
			namespaces[namespace] = &namespaceQueue{}
			q = append(q, namespaces[namespace])
		}
		namespaces[namespace].pending = append(namespaces[namespace].pending, p)
	}
	return q
}

// next removes and returns the metric to query next, and counts it as running in its
// namespace. The queue must not be empty.
func (q *fairQueue) next() (metric int, n *namespaceQueue) {
	n = slices.MinFunc(*q, func(a, b *namespaceQueue) int {
		return cmp.Or(cmp.Compare(a.running, b.running), a.pending[0].compare(b.pending[0]))
	})
	metric = n.pending[0].metric
	n.pending = n.pending[1:]
	n.running++
	if len(n.pending) == 0 {
		*q = slices.DeleteFunc(*q, func(o *namespaceQueue) bool { return o == n })
	}
	return metric, n
}

// queryLog stores which report last queried each metric. Its zero value is usable.
type queryLog struct {
	mu      sync.Mutex
	reports uint64
	last    map[query.Query]uint64
}

// startReport returns the number of a new report and forgets all queries of other metrics.
func (l *queryLog) startReport(declared []rules.Declared) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := make(map[query.Query]uint64, len(declared))
	for i := range declared {
		q := declared[i].MetricQuery.Query
		if report, ok := l.last[q]; ok {
			kept[q] = report
		}
	}
	l.last = kept
	l.reports++
	return l.reports
}

// lastReport returns the number of the report that ran a query last; zero for none.
func (l *queryLog) lastReport(q query.Query) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last[q]
}

func (l *queryLog) record(q query.Query, report uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last[q] = max(l.last[q], report)
}
