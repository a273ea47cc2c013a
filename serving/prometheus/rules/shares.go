// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// shareKey identifies the metrics that are listed as one share: of a rule for one resource, or all
// that a namespace declares.
type shareKey struct {
	owner    string // the path of the rule, or the namespace
	resource schema.GroupResource
}

// share has the metrics of a share, and what they cost together.
type share struct {
	shareKey
	metrics []*query.ObjectMetric
	cost    int
}

func (s *share) compare(o *share) int {
	return cmp.Or(cmp.Compare(s.cost, o.cost), strings.Compare(s.owner, o.owner), strings.Compare(s.resource.String(), o.resource.String()))
}

type shares map[shareKey]*share

func (s shares) add(key shareKey, m *query.ObjectMetric) {
	of := s[key]
	if of == nil {
		of = &share{shareKey: key}
		s[key] = of
	}
	of.metrics, of.cost = append(of.metrics, m), of.cost+query.ListCost(m.Name)
}

func compareMetrics(a, b *query.ObjectMetric) int { return keyOf(*a).compare(keyOf(*b)) }

// divide returns metrics, in order, that cost at most budget together, and what is left of it. Each
// share may have the same part, the cheapest first, and what it leaves is for the others. A metric of
// several is listed once. It adds the numbers of metrics that are left out to omitted, by owner.
func (s shares) divide(budget int, omitted map[string]int) (listed []query.ObjectMetric, left int) {
	known := map[metricKey]bool{}
	all := slices.SortedFunc(maps.Values(s), (*share).compare)
	for i, of := range all {
		part := budget / (len(all) - i)
		// Of the metrics, of which there may be a million, it sorts at most twice as many at a time
		// as have room.
		var first []*query.ObjectMetric
		var last *query.ObjectMetric
		for _, m := range of.metrics {
			if last != nil && compareMetrics(m, last) > 0 || query.ListCost(m.Name) > part || known[keyOf(*m)] {
				continue
			}
			if first = append(first, m); len(first)/2 >= part {
				slices.SortFunc(first, compareMetrics)
				first, last = first[:part], first[part-1]
			}
		}
		slices.SortFunc(first, compareMetrics)
		rest := len(of.metrics)
		for _, m := range first[:min(len(first), part)] {
			if size := query.ListCost(m.Name); size <= part {
				part, budget, rest, known[keyOf(*m)] = part-size, budget-size, rest-1, true
				listed = append(listed, *m)
			}
		}
		omitted[of.owner] += rest
	}
	slices.SortFunc(listed, func(a, b query.ObjectMetric) int { return compareMetrics(&a, &b) })
	return listed, budget
}
