// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestLimitMetrics(t *testing.T) {
	// several returns n metrics of a namespace whose names are in the order of their age.
	several := func(namespace string, n int) []*ExternalMetric {
		var all []*ExternalMetric
		for i := range n {
			m := &ExternalMetric{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("m%04d", i)}}
			m.CreationTimestamp = metav1.Unix(int64(1_700_000_000+i), 0)
			all = append(all, m)
		}
		return all
	}
	reversed := func(all []*ExternalMetric) []*ExternalMetric {
		slices.Reverse(all)
		return all
	}
	sameAge := func(all []*ExternalMetric) []*ExternalMetric {
		for _, m := range all {
			m.CreationTimestamp = metav1.Unix(1_700_000_000, 0)
		}
		return all
	}
	manyNamespaces := func(namespaces, each int) []*ExternalMetric {
		var all []*ExternalMetric
		for i := range namespaces {
			all = append(all, several(fmt.Sprintf("n%04d", i), each)...)
		}
		return all
	}
	tests := map[string]struct {
		objects []*ExternalMetric
		// used are the numbers of metrics that are used, by namespace, and last the youngest
		// used of namespace shop.
		used map[string]int
		last string
	}{
		"none":                         {objects: nil, used: map[string]int{}},
		"as many as possible":          {objects: several("shop", MaxMetricsPerNamespace), used: map[string]int{"shop": 1000}, last: "m0999"},
		"too many in a namespace":      {objects: append(several("shop", 1002), several("zoo", 2)...), used: map[string]int{"shop": 1000, "zoo": 2}, last: "m0999"},
		"whatever the order":           {objects: reversed(several("shop", 1002)), used: map[string]int{"shop": 1000}, last: "m0999"},
		"by name if they are as old":   {objects: reversed(sameAge(several("shop", 1002))), used: map[string]int{"shop": 1000}, last: "m0999"},
		"too many in all":              {objects: append(manyNamespaces(5, 1000), several("shop", 10)...), used: map[string]int{"n0000": 998, "n0001": 998, "n0002": 998, "n0003": 998, "n0004": 998, "shop": 10}, last: "m0009"},
		"the largest namespaces first": {objects: append(append(several("a", 900), manyNamespaces(41, 100)...), several("shop", 500)...), used: map[string]int{"a": 450, "shop": 450}, last: "m0449"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			used, rest := LimitMetrics(tc.objects)
			if len(used)+len(rest) != len(tc.objects) || len(used) > MaxMetrics {
				t.Errorf("%d are used and %d are not, of %d", len(used), len(rest), len(tc.objects))
			}
			got, last := map[string]int{}, ""
			for _, m := range used {
				got[m.Namespace]++
				if m.Namespace == "shop" {
					last = max(last, m.Name)
				}
			}
			for namespace := range got {
				if _, ok := tc.used[namespace]; !ok && got[namespace] == 100 {
					delete(got, namespace) // all of its metrics
				}
			}
			if diff := cmp.Diff(tc.used, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if last != tc.last {
				t.Errorf("the youngest that is used is %s, want %s", last, tc.last)
			}
		})
	}
	t.Run("more namespaces than metrics are used", func(t *testing.T) {
		if used, rest := LimitMetrics(manyNamespaces(MaxMetrics+1, 2)); len(used) != MaxMetrics+1 || len(rest) != MaxMetrics+1 {
			t.Errorf("%d are used and %d are not", len(used), len(rest))
		}
	})
}
