//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

const (
	valuesBackend = "values"
	requestsPath  = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/http_requests"
	queuePath     = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue_length"
	allQueuesPath = "/apis/external.metrics.k8s.io/v1beta1/namespaces/*/queue_length"
)

// valuesSpec has rules in prometheus-adapter's language over one server.
func valuesSpec(url string) v1alpha1.MetricsBackendSpec {
	second := &metav1.Duration{Duration: time.Second}
	return v1alpha1.MetricsBackendSpec{
		ResourceMetrics: &v1alpha1.ResourceMetricsSpec{Scrape: v1alpha1.ScrapeSpec{
			Interval: second, Timeout: second, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{nodesOf: valuesBackend}},
		}},
		Sources: []v1alpha1.SourceSpec{{Name: "main", Prometheus: &v1alpha1.PrometheusSource{
			URL: url, Interval: second, SeriesInterval: &metav1.Duration{Duration: 5 * time.Second},
			Authentication: v1alpha1.SourceAuthentication{BearerTokenSecretKeyRef: &v1alpha1.SecretKeyReference{SecretReference: v1alpha1.SecretReference{Name: "prometheus"}, Key: "token"}},
		}}},
		CustomMetrics: &v1alpha1.CustomMetricsSpec{Rules: []v1alpha1.MetricRule{{
			SeriesQuery: `http_requests_total{namespace!="",pod!=""}`,
			Resources: v1alpha1.RuleResources{Overrides: map[string]v1alpha1.RuleResource{
				"namespace": {Resource: "namespace"}, "pod": {Resource: "pod"},
			}},
			Name:         v1alpha1.RuleName{Matches: "^(.*)_total$", As: "$1"},
			MetricsQuery: `sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)`,
		}}},
		ExternalMetrics: &v1alpha1.ExternalMetricsSpec{Rules: []v1alpha1.MetricRule{{
			SeriesQuery:  `queue_length`,
			Resources:    v1alpha1.RuleResources{Namespaced: new(bool)},
			MetricsQuery: `sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)`,
		}, {
			SeriesQuery:  `queue_length`,
			Resources:    v1alpha1.RuleResources{Namespaced: new(bool)},
			Name:         v1alpha1.RuleName{As: "cloud/queue"},
			MetricsQuery: `sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)`,
		}, {
			SeriesQuery:  `queue_length`,
			Resources:    v1alpha1.RuleResources{Namespaced: new(bool)},
			Name:         v1alpha1.RuleName{As: "status"},
			MetricsQuery: `sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)`,
		}}},
	}
}

// TestValues asks for custom and external metrics as users and autoscalers do: through
// kube-apiserver, with rules over a server with Prometheus' API.
func TestValues(t *testing.T) {
	beside(t)
	prometheus := startPrometheus(t)
	prometheus.token = "first"
	prometheus.set("3.5", "__name__", "http_requests_total", "namespace", "default", "pod", "values-0")
	prometheus.set("7", "__name__", "http_requests_total", "namespace", "default", "pod", "values-1")
	prometheus.set("10", "__name__", "queue_length", "queue", "a")
	prometheus.set("20", "__name__", "queue_length", "queue", "b")
	cluster.createPod(t, "", "values-0", map[string]string{"app": "values"}, "app")
	cluster.createPod(t, "", "values-1", map[string]string{"app": "values"}, "app")

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "prometheus"}, StringData: map[string]string{"token": "first"}}
	if _, err := cluster.client.CoreV1().Secrets(servingNamespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cluster.delete(t, "secrets", servingNamespace, "prometheus") })
	backend := &v1alpha1.MetricsBackend{ObjectMeta: metav1.ObjectMeta{Name: valuesBackend}, Spec: valuesSpec(prometheus.URL)}
	create(t, newBackendClient(t), backend)

	p := cluster.startServing(t, valuesBackend, "--backend="+valuesBackend, "--service-namespace="+servingNamespace, "--service-name="+valuesBackend)
	p.waitReady(t)
	cluster.register(t, valuesBackend, p.port)
	for version, priority := range map[schema.GroupVersion]int32{
		{Group: "custom.metrics.k8s.io", Version: "v1beta2"}: 200, {Group: "custom.metrics.k8s.io", Version: "v1beta1"}: 100,
		{Group: "external.metrics.k8s.io", Version: "v1beta1"}: 100,
	} {
		cluster.createAPIService(t, valuesBackend, p.port, version, priority)
		cluster.waitAvailable(t, version)
	}
	// Once the pod is ready nothing is missing: the source has answered, and its series
	// are known.
	for path, want := range map[string][]string{requestsPath: {"values-0 3500m", "values-1 7"}, queuePath: {"queue=a 10", "queue=b 20"}} {
		outcome.Eventually(t, time.Minute, "kube-apiserver serves "+path, func(context.Context) error {
			_, err := raw(t.Context(), path)
			return err
		})
		if got := valuesAt(t, path); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}

	t.Run("access", testValueAccess)
	t.Run("all namespaces", testAllNamespaces)
	t.Run("a metric called status", testMetricCalledStatus)
	t.Run("autoscalers", testAutoscalerNames)
}

func create(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(c.Delete(context.WithoutCancel(t.Context()), object)); err != nil {
			t.Errorf("delete %T %s: %v", object, object.GetName(), err)
		}
	})
}
