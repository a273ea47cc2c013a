// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package serving

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// TestFileWithInvalidParts: without a status to read, the log, a metric and explanations say which
// rules, sources and declared metrics of the file cannot be used.
func TestFileWithInvalidParts(t *testing.T) {
	beside(t)
	const account = "invalid-parts"
	_, err := cluster.client.CoreV1().ServiceAccounts(servingNamespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := bindCluster(t.Context(), cluster.client, account, "cluster-admin"); err != nil {
		t.Fatal(err)
	}
	token, folder := cluster.token(t, account), t.TempDir()
	write := func(seriesQuery string) string {
		return cluster.writeFile(t, folder, "backend.yaml", []byte(fastScrapes(account,
			`sources: [{name: main, prometheus: {url: "http://127.0.0.1:1"}}, {name: odd, prometheus: {url: "ftp://x"}}]`,
			fmt.Sprintf("externalMetrics: {rules: [{seriesQuery: %q}]}", seriesQuery))+`---
apiVersion: metricsbackend.io/v1alpha1
kind: ExternalMetric
metadata: {namespace: default, name: lag}
spec: {query: "sum("}
`))
	}
	p := cluster.startServing(t, account, "--backend-file="+write("{"))
	wants := func(what, path string, code int, wants ...string) {
		t.Helper()
		outcome.Eventually(t, 20*time.Second, what, func(context.Context) error {
			got, body, err := p.get(t.Context(), path, token)
			if err != nil {
				return err
			}
			for _, want := range wants {
				if got != code || !strings.Contains(body, want) {
					return fmt.Errorf("status %d, want %d with %s: %.2000s", got, code, want, body)
				}
			}
			return nil
		})
	}
	const external = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/"
	wants("the metric counts them", "/metrics", http.StatusOK, `metrics_backend_config_invalid_parts{part="rule"} 1`,
		`metrics_backend_config_invalid_parts{part="source"} 1`, `metrics_backend_config_invalid_parts{part="declared_metric"} 1`)
	wants("explain names the rule", external+"misses?explain=true", http.StatusNotFound, "spec.externalMetrics.rules[0] (InvalidSeriesQuery)")
	wants("explain names the declared metric", external+"lag?explain=true", http.StatusNotFound, "ExternalMetric default/lag (InvalidQuery: ")
	times := func(text string) int { return strings.Count(p.log.String(), text) }
	const rule = `path="spec.externalMetrics.rules[0]" reason="InvalidSeriesQuery" message="seriesQuery is `
	for _, text := range []string{rule + "not a selector", `path="spec.sources[1]" reason="InvalidSpec"`, `path="ExternalMetric default/lag" reason="InvalidQuery"`} {
		outcome.Eventually(t, 20*time.Second, "the log says why", func(context.Context) error { return p.logged(text) })
		if n := times(text); n != 1 {
			t.Errorf("%s is logged %d times", text, n)
		}
	}

	write("")
	outcome.Eventually(t, 20*time.Second, "the change is logged", func(context.Context) error { return p.logged(rule + "empty") })
	if n := times("A part of the configuration cannot be used"); n != 4 {
		t.Errorf("%d parts are logged in all, want 4", n)
	}
}
