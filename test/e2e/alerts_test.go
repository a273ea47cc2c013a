// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// Faults fire the alerts that docs/reference/alerts.md has for them, and no others; when they are mended, none fires.
func TestAlertsFire(t *testing.T) {
	requireBackend(t)
	t.Cleanup(func() {
		// A backend that outlived this would keep external metrics for their clients.
		if out, err := run("kubectl", "delete", "metricsbackends", "--all", "--timeout=180s"); err != nil {
			outcome.Unsafe(t, "delete the MetricsBackend: %v: %s", err, out)
		}
	})
	startPrometheus(t)
	kubectl(t, "-n", "monitoring", "rollout", "status", "deployment/prometheus", "--timeout=180s")
	noAlertFires(t)

	t.Log("a source that is down")
	applyText(t, `
apiVersion: metricsbackend.io/v1alpha1
kind: ExternalMetric
metadata: {name: unreachable, namespace: default}
spec: {query: vector(1)}`)
	changeBackend(t, func(spec *v1alpha1.MetricsBackendSpec) {
		spec.ExternalMetrics = &v1alpha1.ExternalMetricsSpec{}
		spec.Sources = []v1alpha1.SourceSpec{{Name: "down", Prometheus: &v1alpha1.PrometheusSource{
			// Nobody listens there.
			URL: "http://127.0.0.1:9", Interval: &metav1.Duration{Duration: 5 * time.Second},
		}}}
	})
	alertsFire(t, "MetricsBackendQueriesFailing", "MetricsBackendSourceSuspended")
	working := prometheusURL(t, "prometheus")
	editBackend(t, func(spec *v1alpha1.MetricsBackendSpec) { spec.Sources[0].Prometheus.URL = working })
	noAlertFires(t)

	t.Log("a policy that cannot be used")
	policy := applyText(t, `
apiVersion: metricsbackend.io/v1alpha1
kind: ExternalMetricsPolicy
metadata: {name: broken}
spec:
  namespaces: [nowhere]
  rules:
  - metric: a
    selector: {matchExpressions: [{key: a, operator: Like}]}`)
	alertsFire(t, "MetricsBackendPolicyInvalid")
	kubectl(t, "delete", "-f", policy)
	noAlertFires(t)

	t.Log("no operator")
	scale := func(deployment string, replicas int) {
		kubectl(t, "-n", namespace, "scale", "deployment/"+deployment, fmt.Sprint("--replicas=", replicas))
	}
	t.Cleanup(func() {
		_, _ = run("kubectl", "-n", namespace, "scale", "deployment/metrics-backend-operator", "--replicas=1")
	})
	scale("metrics-backend-operator", 0)
	alertsFire(t, "MetricsBackendOperatorNotLeading")

	t.Log("and no serving pod")
	scale("metrics-serving-"+backendName, 0)
	alertsFire(t, "MetricsAPIServiceUnavailable", "MetricsBackendOperatorNotLeading")
	scale("metrics-backend-operator", 1)
	waitServing(t, 2)
	waitReady(t)
	noAlertFires(t)
}

// applyText applies a manifest, which is deleted when the test ends, and returns its file.
func applyText(t *testing.T, manifest string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = run("kubectl", "delete", "--ignore-not-found", "-f", file) })
	kubectl(t, "apply", "--server-side", "-f", file)
	return file
}
