//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// TestWithoutResourceMetrics: a backend for other metrics scrapes no kubelet and does not wait for rates. A list is
// never empty for lack of data: before the first rates, and while an APIService still leads to the backend.
func TestWithoutResourceMetrics(t *testing.T) {
	beside(t)
	const test = "collection"
	kubelet := cluster.startNode(t, "node-"+test, map[string]string{nodesOf: test})
	cluster.createPod(t, "node-"+test, "only-"+test, nil, "app")
	kubelet.run("only-"+test, "app")
	backends := newBackendClient(t)
	backend := &v1alpha1.MetricsBackend{
		ObjectMeta: metav1.ObjectMeta{Name: test},
		Spec: v1alpha1.MetricsBackendSpec{
			Sources:         []v1alpha1.SourceSpec{{Name: "absent", Optional: true, Prometheus: &v1alpha1.PrometheusSource{URL: "http://127.0.0.1:1"}}},
			ExternalMetrics: &v1alpha1.ExternalMetricsSpec{},
		},
	}
	if err := backends.Create(t.Context(), backend); err != nil {
		t.Fatalf("create the MetricsBackend: %v", err)
	}
	t.Cleanup(func() {
		if err := backends.Delete(context.WithoutCancel(t.Context()), backend); err != nil {
			t.Errorf("delete the MetricsBackend: %v", err)
		}
	})
	reader := cluster.token(t, "reader")
	p := cluster.startServing(t, test, "--backend="+test)
	p.waitReady(t)

	// list returns the status of a list of pods, and whether it has some.
	list := func() (status int, some bool, body string) {
		t.Helper()
		status, body, err := p.get(t.Context(), "/apis/metrics.k8s.io/v1/pods", reader)
		if err != nil {
			t.Fatal(err)
		}
		return status, strings.Contains(body, "only-"+test), body
	}
	if status, _, body := list(); status != http.StatusServiceUnavailable || !strings.Contains(body, "spec.resourceMetrics") {
		t.Errorf("without resource metrics: status %d: %s", status, body)
	}
	if n := kubelet.requests(time.Time{}); n > 0 {
		t.Errorf("without resource metrics the kubelet was scraped %d times", n)
	}

	edit(t, backends, test, func(b *v1alpha1.MetricsBackend) {
		b.Spec.ResourceMetrics = newBackend(time.Second).Spec.ResourceMetrics
		b.Spec.ResourceMetrics.Scrape.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{nodesOf: test}}
	})
	outcome.Eventually(t, time.Minute, "resource metrics are served", func(context.Context) error {
		status, some, body := list()
		if status == http.StatusOK && !some {
			t.Errorf("an empty list before the first rates: %s", body)
		}
		if status != http.StatusOK {
			return fmt.Errorf("status %d: %s", status, body)
		}
		return nil
	})

	setRegistered := func(services ...v1alpha1.APIServiceStatus) {
		t.Helper()
		b := edit(t, backends, test, func(*v1alpha1.MetricsBackend) {})
		b.Status.APIServices = services
		if err := backends.Status().Update(t.Context(), b); err != nil {
			t.Fatalf("update the status of the MetricsBackend: %v", err)
		}
	}
	// wait waits until the kubelets of a number of nodes are scraped.
	wait := func(what string, generation int64, nodes int) {
		t.Helper()
		outcome.Eventually(t, 20*time.Second, what, func(context.Context) error {
			report, err := readReport[v1alpha1.SourceReport](t.Context(), p, v1alpha1.SourcesPath, reader)
			if err == nil && (report.ObservedGeneration != generation || report.Kubelets.Nodes != nodes) {
				err = fmt.Errorf("want generation %d and %d nodes: %+v", generation, nodes, report)
			}
			return err
		})
	}
	setRegistered(v1alpha1.APIServiceStatus{Name: "v1.metrics.k8s.io", State: v1alpha1.APIServiceAvailable})
	removed := edit(t, backends, test, func(b *v1alpha1.MetricsBackend) { b.Spec.ResourceMetrics = nil })
	wait("kubelets are scraped while an APIService is registered", removed.Generation, 1)
	if status, some, body := list(); status != http.StatusOK || !some {
		t.Errorf("while an APIService is registered: status %d: %s", status, body)
	}
	setRegistered()
	wait("kubelets are not scraped any more", removed.Generation, 0)
	if status, _, body := list(); status != http.StatusServiceUnavailable {
		t.Errorf("without APIServices: status %d: %s", status, body)
	}
}
