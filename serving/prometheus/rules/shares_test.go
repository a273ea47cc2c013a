// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints"

	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
)

const maxDiscovered = 2000 // valueapi.MaxDiscovered

// documentSize returns the size of the aggregated discovery document with all that c lists.
func documentSize(t *testing.T, c *Catalog) (size int) {
	t.Helper()
	var custom, external []metav1.APIResource
	metrics, _ := c.ObjectMetrics(maxDiscovered)
	for _, m := range metrics {
		custom = append(custom, metav1.APIResource{Name: m.Resource.String() + "/" + m.Name, Namespaced: m.Namespaced, Kind: "MetricValueList", Verbs: metav1.Verbs{"get", "watch"}})
	}
	names, _ := c.ExternalMetrics(maxDiscovered)
	for _, name := range names {
		external = append(external, metav1.APIResource{Name: name, Namespaced: true, Kind: "ExternalMetricValueList", Verbs: metav1.Verbs{"get", "watch"}})
	}
	for _, all := range [][]metav1.APIResource{custom, custom, external} {
		converted, err := endpoints.ConvertGroupVersionIntoToDiscovery(all)
		if err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(converted)
		if err != nil {
			t.Fatal(err)
		}
		size += len(body)
	}
	return size
}

// Whatever is in the names, discovery is at most 1 MiB, and lists metrics of the rule.
func TestDiscoveryIsSmall(t *testing.T) {
	for about, end := range map[string]string{
		"41 characters, which count once": strings.Repeat("x", 36), "253 characters": strings.Repeat("x", 248),
		"escapes": strings.Repeat("&", 248), "separators": strings.Repeat("\u2028", 248),
	} {
		c := NewCatalog(&cluster{index: index()}, clock.RealClock{})
		rules := []v1alpha1.MetricRule{{SeriesQuery: "x", Resources: v1alpha1.RuleResources{Template: "<<.Resource>>"}, Name: v1alpha1.RuleName{As: "${0}" + end}}}
		c.Apply(backend(rules, rules))
		var all []series.Series
		for i := range 3000 {
			all = append(all, seriesOf(fmt.Sprintf("x%04d", i), "namespace", "pod", "service"))
		}
		c.SetSeries(c.Selections()[0], all)
		listed, _ := c.ObjectMetrics(maxDiscovered)
		if size := documentSize(t, c); size > 1<<20 || len(listed) == 0 {
			t.Errorf("%s: %d metrics, and %d bytes", about, len(listed), size)
		}
	}
}

// What one namespace declares hides no metric of another one, and it is said how many are hidden.
func TestSharesOfNamespaces(t *testing.T) {
	for name, test := range map[string]struct {
		declare func(add func(namespace, resource, name string))
		want    map[string]int
		omitted int
	}{
		"names of others": {func(add func(namespace, resource, name string)) {
			for i := range 100 {
				for _, namespace := range []string{"aaa", "bank"} {
					add(namespace, "pods", fmt.Sprintf("tx_%03d", i))
				}
				for _, namespace := range []string{"aaa", "shop"} {
					add(namespace, "pods", fmt.Sprintf("orders_%03d", i))
				}
			}
			for i := range 800 {
				add("aaa", "pods", fmt.Sprintf("a_%03d%s", i, strings.Repeat("x", 240)))
			}
		}, map[string]int{"tx": 100, "orders": 100, "a": 300}, 500},
		"many resources": {func(add func(namespace, resource, name string)) {
			for i := range 1500 {
				add("aaa", []string{"pods", "services"}[i%2], fmt.Sprintf("a_%04d", i))
				add("bank", "pods", fmt.Sprintf("tx_%04d", i))
			}
		}, map[string]int{"a": 1000, "tx": 1000}, 1000},
		"long names": {func(add func(namespace, resource, name string)) {
			for i := range 100 {
				namespace := fmt.Sprintf("n%d", i)
				add(namespace, "pods", "a_"+namespace+strings.Repeat("<", 240)) // counts as 33: the part is 20
				for k := range 30 {
					add(namespace, "pods", fmt.Sprintf("b_%s-%02d", namespace, k))
				}
			}
		}, map[string]int{"b": 2000}, 1100},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCatalog(t, backend(nil, nil))
			var all []*v1alpha1.CustomMetric
			test.declare(func(namespace, resource, name string) {
				m := customMetric(namespace, name, "up")
				m.Spec.DescribedObject.Resource = resource
				all = append(all, m)
			})
			c.Declare(all, nil)
			got := map[string]int{}
			listed, _ := c.ObjectMetrics(maxDiscovered)
			for _, m := range listed {
				prefix, _, _ := strings.Cut(m.Name, "_")
				got[prefix]++
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			told := c.Health().Rules
			if len(told) != 1 || told[0].Path != "spec.customMetrics" || told[0].Reason != ReasonOmittedFromDiscovery || !strings.HasPrefix(told[0].Message, fmt.Sprintf("%d metrics that namespaces", test.omitted)) {
				t.Errorf("told of %+v, want %d", told, test.omitted)
			}
		})
	}
}

// A warning about metrics that are not listed stays while their rule does, whatever changes.
func TestOmittedStays(t *testing.T) {
	c := newCatalog(t, backend([]v1alpha1.MetricRule{{SeriesQuery: "x", Resources: namespacePod}}, nil), seriesOf("x", "namespace", "pod"))
	c.ObjectMetrics(1)
	before := c.Health().Rules
	c.SetResources(index())
	if diff := cmp.Diff(before, c.Health().Rules); diff != "" || len(before) != 1 {
		t.Errorf("%d; after new resources (-before +after):\n%s", len(before), diff)
	}
}
