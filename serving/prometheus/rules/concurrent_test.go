// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"sync"
	"testing"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// Everything changes while everything is read, for the race detector.
func TestChangesWhileItIsRead(t *testing.T) {
	spec := backend([]v1alpha1.MetricRule{{SeriesQuery: "requests", Resources: namespacePod}}, []v1alpha1.MetricRule{{SeriesQuery: "lag"}})
	c := newCatalog(t, spec, seriesOf("requests", "namespace", "pod"), seriesOf("lag", "namespace"))
	other := spec.DeepCopy()
	other.CustomMetrics.Rules = append(other.CustomMetrics.Rules, v1alpha1.MetricRule{SeriesQuery: "up", Resources: namespacePod})
	all := []series.Series{seriesOf("requests", "namespace", "pod"), seriesOf("lag", "namespace")}
	more := append([]series.Series{seriesOf("up", "namespace", "pod")}, all...)
	const rounds = 200
	var wait sync.WaitGroup
	for _, f := range []func(round int){
		func(round int) { c.Apply([]*v1alpha1.MetricsBackendSpec{spec, other}[round%2]) },
		func(round int) {
			for _, s := range c.Selections() {
				c.SetSeries(s, [][]series.Series{all, more}[round%2])
			}
		},
		func(int) { c.SetResources(index()) },
		func(round int) {
			c.Declare([]*v1alpha1.CustomMetric{customMetric("team", "m", "up")}, []*v1alpha1.ExternalMetric{externalMetric("team", "m", "up")}[:round%2])
		},
		func(round int) {
			// It is there all the time, whatever else changes.
			mq, _, err := c.ObjectQuery(pods("shop", "requests", "a", "b"))
			if err != nil {
				t.Error(err)
			}
			_, _ = mq.Values(podSeries(make([]float64, 1+round%2)...), nil)
			if _, err := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "lag"}); err != nil {
				t.Error(err)
			}
		},
		func(round int) {
			c.ObjectMetrics(round)
			c.ExternalMetrics(round)
			c.Health()
			c.Declared()
			c.QueryProblems(now, answers)
		},
	} {
		wait.Go(func() {
			for round := range rounds {
				f(round)
			}
		})
	}
	wait.Wait()
}
