// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"hash/fnv"
	"slices"
	"sync"
	"time"

	promlabels "github.com/prometheus/prometheus/model/labels"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/metricsbackend/metrics-backend-operator/internal/lru"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

const (
	// sharedSelections and sharedPart say when objects of a metric are asked for by one query for all: if so many
	// sets of names are asked for in an interval, or names of this part of the series. Otherwise an autoscaler of
	// three pods would cost a query over all pods of a large namespace. sharedTime is how long it then stays so.
	sharedSelections = 5
	sharedPart       = 10
	sharedTime       = 10 * time.Minute
	// maxSharedSeries limits the series of a metric at its source for which a shared query is
	// used. Beyond it the query names the objects, so that an autoscaler of three pods does
	// not cost a query over all series of a very large namespace.
	maxSharedSeries = 20000
	// maxSharedQueries and maxSharedBytes limit the cached queries, as clients choose the
	// selectors. Longer selectors than maxSharedSelector bytes are hardly an autoscaler's, and
	// not cached: nor are the requests for them counted.
	maxSharedQueries  = 20000
	maxSharedBytes    = 16 << 20
	maxSharedSelector = 1 << 10
)

// Names that no object has, for the proof.
const (
	someObject    = "some-object-0-metricsbackend"
	anotherObject = "another-object-1-metricsbackend"
)

// sharedQuery is the query for all objects of a namespace, or of the cluster, and what of it is asked for. Of an
// external metric it is the query itself.
type sharedQuery struct {
	query *query.MetricQuery // nil for none

	mu sync.Mutex
	// selections are hashes of the sets of names since the start of an interval, at most sharedSelections, and names
	// counts theirs.
	start      time.Time
	selections []uint64
	names      int
	// until is how long the query is used without further need.
	until time.Time
}

// count counts a request for objects unless it is a watch's, which always shares, and reports whether they are asked
// for by the query for all of them.
func (s *sharedQuery) count(names []string, watch bool, series int, interval time.Duration, now time.Time) bool {
	switch {
	case s.query == nil || series > maxSharedSeries:
		return false
	case watch:
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.start) >= interval {
		s.start, s.selections, s.names = now, nil, 0
	}
	if len(s.selections) < sharedSelections {
		hash := fnv.New64a()
		for _, name := range names {
			_, _ = hash.Write(append([]byte(name), 0)) // never fails
		}
		if selection := hash.Sum64(); !slices.Contains(s.selections, selection) {
			s.selections = append(s.selections, selection)
			s.names += len(names)
		}
	}
	if len(s.selections) == sharedSelections || s.names*sharedPart >= series {
		s.until = now.Add(sharedTime)
	}
	return now.Before(s.until)
}

// sharedQuery returns the query for all objects of the namespace, or of the cluster, if it
// provably yields for each object what the query for that object yields. Autoscalers with
// different selectors then share one evaluation. It returns nil without such a proof.
func (b *binding) sharedQuery(namespace string, series labels.Selector) *query.MetricQuery {
	var all query.MetricQuery // that of the last call
	if _, ok := separable(b.objectLabel, func(names []string) (expression string, err error) {
		all, err = b.metricQuery(namespace, names, series)
		return all.Query.Expression, err
	}); !ok {
		return nil
	}
	return &all
}

// separable returns the expression for all values of a label, which it renders last, and
// whether it provably yields for each value what the expression for that value yields.
func separable(label string, render func(values []string) (string, error)) (all string, ok bool) {
	var expressions [3]string
	for i, values := range [][]string{{someObject}, {someObject, anotherObject}, nil} {
		var err error
		if expressions[i], err = render(values); err != nil {
			return "", false
		}
	}
	return expressions[2], promql.Separable(promql.Rendering{
		Label: label, First: someObject, Second: anotherObject, One: expressions[0], Two: expressions[1], All: expressions[2],
	})
}

// batch returns how the expression for a request can be evaluated together with those for other values
// of the labels that its selector compares with one value.
func (q *templateInput) batch(expression string) query.Batch {
	var equal []promql.Matcher
	for _, m := range q.selected {
		if m.Type == promlabels.MatchEqual && m.Value != "" {
			equal = append(equal, m)
		}
	}
	if len(equal) == 0 || len(equal) > query.MaxBatchLabels {
		return query.Batch{}
	}
	template, added, ok := promql.Template(expression, equal)
	if !ok {
		return query.Batch{}
	}
	b := query.BatchTemplate{Template: template}
	for i, m := range equal {
		b.Labels[i] = query.BatchLabel{Name: m.Label, Value: m.Value, Alternative: promql.Alternative(m.Value), Added: added[i]}
	}
	return query.NewBatch(b)
}

// sharedKey identifies a shared query.
type sharedKey struct {
	binding   *binding
	namespace string
	series    string
}

func newSharedKey(b *binding, namespace string, series labels.Selector) sharedKey {
	key := sharedKey{binding: b, namespace: namespace}
	if series != nil && !series.Empty() {
		key.series = series.String()
	}
	return key
}

// newSharedQueries returns a cache of shared queries.
func newSharedQueries() *lru.Cache[sharedKey, *sharedQuery] {
	return lru.New(maxSharedQueries, maxSharedBytes, func(k sharedKey, s *sharedQuery) int {
		if len(k.series) > maxSharedSelector {
			return maxSharedBytes // which is not cached
		}
		const fixed = 1 << 10 // the approximate size of key and query without text
		size := fixed + len(k.namespace) + len(k.series)
		if q := s.query; q != nil {
			size += len(q.Query.Expression)
			if q.Query.Batch != (query.Batch{}) {
				size += len(q.Query.Expression) // about the size of its template
			}
		}
		return size
	})
}
