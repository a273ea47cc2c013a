// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
	"github.com/metricsbackend/metrics-backend-operator/test/heap"
)

// TestManyMetrics: what serving takes for each metric in use, and for each beyond the limits, if they have as much query or as
// many labels as possible. docs/tasks/operations.md has the sums; serving has no memory limit by default.
func TestManyMetrics(t *testing.T) {
	tests := map[string]struct {
		fill               func(spec *v1alpha1.ExternalMetricSpec, i int)
		mostUsed, mostRest float64
	}{
		"query": {func(spec *v1alpha1.ExternalMetricSpec, i int) {
			spec.Query = fmt.Sprintf(`sum(up{a="%06d%s"})`, i, strings.Repeat("x", v1alpha1.MaxDeclaredSize-19))
		}, 6_500, 2_900},
		"labels": {func(spec *v1alpha1.ExternalMetricSpec, i int) {
			spec.Query, spec.Labels = "sum(up)", map[string]string{}
			for label := range 50 {
				text := fmt.Sprintf("label-%05d-%02d-abcde", i, label)
				spec.Labels[text] = text
			}
		}, 7_000, 5_900},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			used := heapOf(t, v1alpha1.MaxMetricsPerNamespace, tc.fill)
			rest := heapOf(t, 2*v1alpha1.MaxMetricsPerNamespace, tc.fill) - used
			used, rest = used/v1alpha1.MaxMetricsPerNamespace, rest/v1alpha1.MaxMetricsPerNamespace
			t.Logf("%.0f bytes for each that is used, %.0f for each beyond the limits", used, rest)
			if used > tc.mostUsed || rest > tc.mostRest {
				t.Errorf("%.0f bytes for each that is used, and %.0f for each beyond the limits, want %.0f and %.0f at most", used, rest, tc.mostUsed, tc.mostRest)
			}
		})
	}
}

// heapOf returns the bytes of heap that a number of ExternalMetrics of a namespace take.
func heapOf(t *testing.T, metrics int, fill func(*v1alpha1.ExternalMetricSpec, int)) float64 {
	t.Helper()
	var list v1alpha1.ExternalMetricList
	list.APIVersion, list.Kind, list.ResourceVersion = v1alpha1.GroupVersion.String(), "ExternalMetricList", "1"
	for i := range metrics {
		m := v1alpha1.ExternalMetric{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprintf("m%06d", i), UID: "0f0f0f0f-0000-0000-0000-000000000000", Generation: 1, ResourceVersion: "1",
			CreationTimestamp: metav1.Unix(int64(i), 0), Annotations: map[string]string{"notes": strings.Repeat("x", 500)},
		}}
		fill(&m.Spec, i)
		list.Items = append(list.Items, m)
	}
	body, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	text := string(body)
	config := kubeAPIServer(t, func(string) (int, string) { return http.StatusOK, text })
	catalog := rules.NewCatalog(restmapping.NewDirectory(nil, clock.RealClock{}), clock.RealClock{})
	catalog.Apply(&v1alpha1.MetricsBackendSpec{Sources: []v1alpha1.SourceSpec{{Name: "main", Prometheus: &v1alpha1.PrometheusSource{URL: "http://prometheus"}}}})
	c, err := newClusterWatcher(config, "cluster", nil, nil, Target{Metrics: catalog.Declare})
	if err != nil {
		t.Fatal(err)
	}
	before := heap.InUse()
	go c.external.Run(t.Context())
	eventually(t, "the metrics are applied", func() bool { return c.external.hasApplied() == nil })
	after := heap.InUse()
	declared := catalog.Declared()
	if last := declared[len(declared)-1]; len(declared) != v1alpha1.MaxMetricsPerNamespace || last.Reason != "" {
		t.Errorf("%d metrics are declared, and the last is %+v", len(declared), last)
	}
	runtime.KeepAlive(text)
	return after - before
}
