// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"runtime"
	"testing"

	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/test/heap"
)

// large is a catalog of 100 rules, each with 10,000 names of series.
func large(b *testing.B, seriesOfRule func(rule int) []series.Series) *Catalog {
	b.Helper()
	var rules []v1alpha1.MetricRule
	for i := range 100 {
		rules = append(rules, v1alpha1.MetricRule{
			SeriesQuery: fmt.Sprintf(`{__name__=~"app%d_.*",pod!=""}`, i), Resources: namespacePod,
			SeriesFilters: []v1alpha1.SeriesFilter{{IsNot: "_bucket$"}},
			Name:          v1alpha1.RuleName{Matches: "^(.*)_total$"},
			MetricsQuery:  `sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)`,
		})
	}
	c := NewCatalog(&cluster{index: index()}, clock.RealClock{})
	c.Apply(backend(rules, nil))
	for i, r := range rules {
		c.SetSeries(Selection{"prometheus", r.SeriesQuery}, seriesOfRule(i))
	}
	return c
}

func thousands(rule int) []series.Series {
	all := make([]series.Series, 10000)
	for i := range all {
		all[i] = series.Series{Name: fmt.Sprintf("app%d_%05d_total", rule, i), Labels: []string{"code", "instance", "namespace", "pod"}, Count: 8}
	}
	return all
}

// BenchmarkObjectQuery is a request of an autoscaler.
func BenchmarkObjectQuery(b *testing.B) {
	for name, metricsQuery := range map[string]string{
		"shared": `sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)`,
		"named":  `topk(100, rate(<<.Series>>{<<.LabelMatchers>>}[2m]))`,
	} {
		b.Run(name, func(b *testing.B) {
			c := newCatalog(b, backend([]v1alpha1.MetricRule{{SeriesQuery: "requests_total", Resources: namespacePod, MetricsQuery: metricsQuery}}, nil), seriesOf("requests_total", "namespace", "pod"))
			request := pods("shop", "requests_total", "web-5d4f8c7b9d-x2x7q", "web-5d4f8c7b9d-abcde", "web-5d4f8c7b9d-fghij")
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if _, _, err := c.ObjectQuery(request); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// BenchmarkSetSeries is a look for the series of one of 100 rules, of 1,000,000 names.
func BenchmarkSetSeries(b *testing.B) {
	c := large(b, thousands)
	s := Selection{"prometheus", `{__name__=~"app7_.*",pod!=""}`}
	same, equal := thousands(7), thousands(7)
	other := thousands(7)
	other[0] = series.Series{Name: "app7_new_total", Labels: []string{"namespace", "pod"}}
	b.Run("nothing new", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			c.SetSeries(s, [][]series.Series{same, equal}[i%2])
		}
	})
	b.Run("one new, one gone", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if i%2 == 0 {
				c.SetSeries(s, other)
			} else {
				c.SetSeries(s, same)
			}
		}
	})
	b.Run("all new", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if i%2 == 0 {
				c.SetSeries(s, nil)
			} else {
				c.SetSeries(s, same)
			}
		}
	})
	b.Run("list", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.cachedLists = nil
			if first, _ := c.ObjectMetrics(2000); len(first) == 0 {
				b.Fatal("no metrics")
			}
		}
	})
}

// BenchmarkApply is an edit of one of 100 rules, with 10,000 names of series each.
func BenchmarkApply(b *testing.B) {
	c := large(b, thousands)
	spec := backend(nil, nil)
	for _, r := range c.rules {
		spec.CustomMetrics.Rules = append(spec.CustomMetrics.Rules, *r.spec.DeepCopy())
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		spec.CustomMetrics.Rules[7].NaNAsZero = i%2 == 0
		c.Apply(spec)
	}
}

// BenchmarkSeriesMemory is what a kind of series takes that is known to 100 rules of
// 10,000 kinds each: its name, and the metrics of two resources that are made of it.
func BenchmarkSeriesMemory(b *testing.B) {
	for b.Loop() {
		before := heap.InUse()
		c := large(b, thousands)
		b.ReportMetric((heap.InUse()-before)/1e6, "B/kind")
		runtime.KeepAlive(c)
	}
}
