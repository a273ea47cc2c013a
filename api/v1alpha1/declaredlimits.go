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
	// MaxLargeMetricsPerNamespace limits those of a namespace that are large.
	MaxLargeMetricsPerNamespace = 50
	// LargeMetric is the number of bytes of the query and the labels from which a metric is
	// large.
	LargeMetric = 1025
)

// LimitedMetric is a CustomMetric or an ExternalMetric.
//
// +kubebuilder:object:generate=false
type LimitedMetric interface {
	metav1.Object
	// IsLarge reports whether query and labels have LargeMetric bytes or more.
	IsLarge() bool
}

// IsLarge reports whether the query has LargeMetric bytes or more.
func (m *CustomMetric) IsLarge() bool { return len(m.Spec.Query) >= LargeMetric }

// IsLarge reports whether query and labels have LargeMetric bytes or more.
func (m *ExternalMetric) IsLarge() bool {
	size := len(m.Spec.Query)
	for k, v := range m.Spec.Labels {
		size += len(k) + len(v)
	}
	return size >= LargeMetric
}

// DropSpec drops the spec, for caches of all metrics: teams choose the number of metrics, and
// their size. A large metric remains large.
func (m *CustomMetric) DropSpec() {
	m.Spec = CustomMetricSpec{DeclaredMetricSpec: droppedSpec(m.IsLarge())}
}

// DropSpec is as DropSpec of a CustomMetric.
func (m *ExternalMetric) DropSpec() {
	m.Spec = ExternalMetricSpec{DeclaredMetricSpec: droppedSpec(m.IsLarge())}
}

// largeQuery replaces the query of each large metric whose spec was dropped.
var largeQuery = strings.Repeat(" ", LargeMetric)

func droppedSpec(large bool) DeclaredMetricSpec {
	if large {
		return DeclaredMetricSpec{Query: largeQuery}
	}
	return DeclaredMetricSpec{}
}

// LimitMetrics divides CustomMetrics or ExternalMetrics into those that are used and the
// rest, and keeps their order. Of each namespace the oldest are used; equally old ones by
// name. No namespace takes the place of another that has fewer.
func LimitMetrics[T LimitedMetric](objects []T) (used, rest []T) {
	byNamespace := map[string][]T{}
	for _, o := range objects {
		byNamespace[o.GetNamespace()] = append(byNamespace[o.GetNamespace()], o)
	}
	dropped := sets.New[types.NamespacedName]()
	drop := func(o T) { dropped.Insert(types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}) }
	for namespace, all := range byNamespace {
		slices.SortFunc(all, func(a, b T) int {
			return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), strings.Compare(a.GetName(), b.GetName()))
		})
		large := 0
		byNamespace[namespace] = slices.DeleteFunc(all, func(o T) bool {
			if !o.IsLarge() {
				return false
			}
			if large++; large <= MaxLargeMetricsPerNamespace {
				return false
			}
			drop(o)
			return true
		})
	}
	limit := limitPerNamespace(byNamespace)
	for _, all := range byNamespace {
		for _, o := range all[min(len(all), limit):] {
			drop(o)
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
