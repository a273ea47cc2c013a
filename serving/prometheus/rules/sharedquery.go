// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/metricsbackend/metrics-backend-operator/internal/lru"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

const (
	// maxSharedSeries limits the series of a metric at its source for which a shared query is
	// used. Beyond it the query names the objects, so that an autoscaler of three pods does
	// not cost a query over all series of a very large namespace.
	maxSharedSeries = 20000
	// maxSharedQueries and maxSharedBytes limit the cached queries, as clients choose the
	// selectors. Longer selectors than maxSharedSelector bytes are hardly an autoscaler's, and
	// not cached.
	maxSharedQueries  = 20000
	maxSharedBytes    = 16 << 20
	maxSharedSelector = 1 << 10
)

// Names that no object has, for the proof.
const (
	someObject    = "some-object-0-metricsbackend"
	anotherObject = "another-object-1-metricsbackend"
)

// sharedQuery returns the query for all objects of the namespace, or of the cluster, if it
// provably yields for each object what the query for that object yields. Autoscalers with
// different selectors then share one evaluation. It returns nil without such a proof.
func (b *binding) sharedQuery(namespace string, series labels.Selector) *query.MetricQuery {
	one, err := b.metricQuery(namespace, []string{someObject}, series)
	if err != nil {
		return nil
	}
	two, err := b.metricQuery(namespace, []string{someObject, anotherObject}, series)
	if err != nil {
		return nil
	}
	all, err := b.metricQuery(namespace, nil, series)
	if err != nil {
		return nil
	}
	if !promql.Separable(promql.Rendering{
		Label: b.objectLabel, First: someObject, Second: anotherObject,
		One: one.Query.Expression, Two: two.Query.Expression, All: all.Query.Expression,
	}) {
		return nil
	}
	return &all
}

// sharedKey identifies a shared query.
type sharedKey struct {
	binding   *binding
	namespace string
	series    string
}

// newSharedQueries returns a cache of shared queries, nil where there is none.
func newSharedQueries() *lru.Cache[sharedKey, *query.MetricQuery] {
	return lru.New(maxSharedQueries, maxSharedBytes, func(k sharedKey, q *query.MetricQuery) int {
		if len(k.series) > maxSharedSelector {
			return maxSharedBytes // which is not cached
		}
		const fixed = 512 // the approximate size of key and query without text
		size := fixed + len(k.namespace) + len(k.series)
		if q != nil {
			size += len(q.Query.Expression)
		}
		return size
	})
}
