//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// testEditedRule: an edit is in force while the process runs; how soon is printed.
func testEditedRule(t *testing.T, backends client.Client) {
	edit(t, backends, valuesBackend, func(b *v1alpha1.MetricsBackend) { b.Spec.ExternalMetrics.Rules[1].Name.As = "renamed" })
	edited := time.Now()
	outcome.Eventually(t, 30*time.Second, "the metric has its new name", func(context.Context) error {
		return wantValues(t.Context(), "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/renamed", "queue=a 10", "queue=b 20")
	})
	t.Logf("the edited rule was in force after %s", time.Since(edited).Round(10*time.Millisecond))
	if err := getAs(t, cluster.config, "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/cloud%5C%7Cqueue"); !apierrors.IsNotFound(err) {
		t.Errorf("under its old name: %v", err)
	}
}

func testDeclaredMetrics(t *testing.T, p *process, backends client.Client, prometheus *fakePrometheus) {
	prometheus.set("5", "__name__", "orders_open", "namespace", "default", "shop", "x")
	prometheus.set("50", "__name__", "orders_open", "namespace", "bank", "shop", "x")
	m := &v1alpha1.ExternalMetric{ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "default"}}
	m.Spec.Query, m.Spec.Labels = "orders_open", map[string]string{"team": "a"}
	create(t, backends, m)
	path := "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/orders"
	outcome.Eventually(t, 10*time.Second, "the metric is served, of its own namespace alone", func(context.Context) error {
		return wantValues(t.Context(), path, "namespace=default,shop=x,team=a 5")
	})
	if err := getAs(t, cluster.config, path+"?labelSelector=team%3Db"); !apierrors.IsNotFound(err) {
		t.Errorf("another selector: %v", err)
	}
	if err := getAs(t, cluster.config, "/apis/external.metrics.k8s.io/v1beta1/namespaces/bank/orders"); !apierrors.IsNotFound(err) {
		t.Errorf("in another namespace: %v", err)
	}
	report, err := readReport[v1alpha1.DeclaredReport](t.Context(), p, v1alpha1.DeclaredPath, cluster.token(t, "reader"))
	if err != nil {
		t.Fatal(err)
	}
	want := []v1alpha1.DeclaredHealth{{
		Kind: "ExternalMetric", Namespace: "default", Name: "orders", UID: m.UID, Generation: 1, Ready: true, Value: "5", Values: 1,
	}}
	for i := range report.Metrics {
		report.Metrics[i].Time = metav1.Time{}
	}
	if diff := cmp.Diff(want, report.Metrics); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// testBadParts: an invalid rule and an unreachable source do not affect other rules.
func testBadParts(t *testing.T, p *process, backends client.Client) {
	edit(t, backends, valuesBackend, func(b *v1alpha1.MetricsBackend) {
		b.Spec.Sources = append(b.Spec.Sources, v1alpha1.SourceSpec{Name: "away", Prometheus: &v1alpha1.PrometheusSource{URL: "http://127.0.0.1:1"}})
		b.Spec.ExternalMetrics.Rules = append(b.Spec.ExternalMetrics.Rules, v1alpha1.MetricRule{SeriesQuery: "queue_length{"})
	})
	reader := cluster.token(t, "reader")
	outcome.Eventually(t, 30*time.Second, "the report has both", func(context.Context) error {
		report, err := readReport[v1alpha1.SourceReport](t.Context(), p, v1alpha1.SourcesPath, reader)
		if err != nil {
			return err
		}
		if len(report.Sources) != 2 || !report.Sources[0].Healthy || report.Sources[1].Healthy || report.Sources[1].Reason != "ConnectionFailed" ||
			report.RuleCount != 5 || report.FailingRules != 1 || len(report.Rules) == 0 || report.Rules[len(report.Rules)-1].Path != "spec.externalMetrics.rules[3]" {
			return fmt.Errorf("%+v", report)
		}
		return nil
	})
	if got := valuesAt(t, queuePath); !slices.Equal(got, []string{"queue=a 10", "queue=b 20"}) {
		t.Errorf("other rules: %q", got)
	}
	if err := p.ready(t.Context()); err != nil {
		t.Errorf("a source took readiness away: %v", err)
	}
}

// testRotatedCredential: after the source refused the old token, the new one in the Secret is used.
func testRotatedCredential(t *testing.T, prometheus *fakePrometheus) {
	prometheus.require("second")
	outcome.Eventually(t, 30*time.Second, "the caller hears that the source refuses", func(context.Context) error {
		err := getAs(t, cluster.config, queuePath)
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "Unauthorized") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	secrets := cluster.client.CoreV1().Secrets(servingNamespace)
	secret, err := secrets.Get(t.Context(), "prometheus", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret.Data["token"] = []byte("second")
	if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	outcome.Eventually(t, 45*time.Second, "the new token is in use", func(context.Context) error {
		return wantValues(t.Context(), queuePath, "queue=a 10", "queue=b 20")
	})
}
