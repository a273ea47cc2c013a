// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Limits of the CustomMetrics that are used, and, separately, of the ExternalMetrics.
const (
	// MaxMetricsPerNamespace limits those of a namespace.
	MaxMetricsPerNamespace = 1000
	// MaxMetrics limits those of the cluster. If there are more, each namespace's limit is
	// lowered to the same number.
	MaxMetrics = 5000
)

// MaxDeclaredSize is the maximum number of bytes of the query and the labels of a CustomMetric
// or an ExternalMetric, as in the schema.
const MaxDeclaredSize = 2048

// LimitMetrics divides CustomMetrics or ExternalMetrics into those that are used and the
// rest, and keeps their order. Of each namespace the oldest are used; equally old ones by
// name. No namespace takes the place of another that has fewer.
func LimitMetrics[T metav1.Object](objects []T) (used, rest []T) {
	byNamespace := map[string][]T{}
	for _, o := range objects {
		byNamespace[o.GetNamespace()] = append(byNamespace[o.GetNamespace()], o)
	}
	limit := limitPerNamespace(byNamespace)
	dropped := sets.New[types.NamespacedName]()
	for namespace, all := range byNamespace {
		if len(all) <= limit {
			continue
		}
		slices.SortFunc(all, func(a, b T) int {
			return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), strings.Compare(a.GetName(), b.GetName()))
		})
		for _, o := range all[limit:] {
			dropped.Insert(types.NamespacedName{Namespace: namespace, Name: o.GetName()})
		}
	}
	if len(dropped) == 0 {
		return objects, nil
	}
	for _, o := range objects {
		if dropped.Has(types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}) {
			rest = append(rest, o)
		} else {
			used = append(used, o)
		}
	}
	return used, rest
}

// limitPerNamespace returns the largest limit at which no more than MaxMetrics are used; at
// least one.
func limitPerNamespace[T any](byNamespace map[string][]T) int {
	larger := sort.Search(MaxMetricsPerNamespace, func(i int) bool {
		total := 0
		for _, all := range byNamespace {
			total += min(len(all), i+1)
		}
		return total > MaxMetrics
	})
	return max(larger, 1)
}
