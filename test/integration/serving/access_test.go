//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// testAccess asks with accounts of different rights, both ways.
func testAccess(t *testing.T, p *process) {
	tests := map[string]struct {
		account, path string
		want          int
	}{
		"a reader reads nodes":      {"reader", "/apis/metrics.k8s.io/v1/nodes", http.StatusOK},
		"a reader reads pods":       {"reader", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/web-0", http.StatusOK},
		"nobody reads nodes":        {"nobody", "/apis/metrics.k8s.io/v1/nodes", http.StatusForbidden},
		"nobody reads pods":         {"nobody", "/apis/metrics.k8s.io/v1beta1/pods", http.StatusForbidden},
		"nobody may read discovery": {"nobody", "/apis/metrics.k8s.io/v1", http.StatusOK},
		"without any credentials":   {"", "/apis/metrics.k8s.io/v1/nodes", http.StatusUnauthorized},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			token := ""
			if tc.account != "" {
				token = cluster.token(t, tc.account)
				config := rest.AnonymousClientConfig(cluster.config)
				config.BearerToken = token
				if status := statusThrough(t, config, tc.path); status != tc.want {
					t.Errorf("through kube-apiserver: status %d, want %d", status, tc.want)
				}
			}
			status, body, err := p.get(t.Context(), tc.path, token)
			if err != nil {
				t.Fatalf("get: %v", err)
			}
			if status != tc.want {
				t.Errorf("directly: status %d, want %d: %s", status, tc.want, body)
			}
		})
	}
}

func statusThrough(t *testing.T, config *rest.Config, path string) int {
	t.Helper()
	client, url := throughKubeAPIServer(t, config)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatalf("get %s: %v", path, err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}

// testOwnEndpoints asks the process for what kube-apiserver does not proxy.
func testOwnEndpoints(t *testing.T, p *process) {
	reader, nobody := cluster.token(t, "reader"), cluster.token(t, "nobody")
	tests := map[string]struct {
		path, token string
		want        int
		wantBody    []string
	}{
		"health without credentials": {path: "/livez", want: http.StatusOK},
		"metrics": {path: "/metrics", token: reader, want: http.StatusOK, wantBody: []string{
			`apiserver_request_total{`, `metrics_backend_kubelet_scrapes_total{result="Success"}`, `metrics_backend_kubelet_store_points{type="pod"} 3`,
			`metrics_backend_config_last_reload_successful 1`, `metrics_backend_readiness_gates_passed 1`, `kubernetes_build_info{`, `go_goroutines`,
		}},
		"metrics for nobody":          {path: "/metrics", token: nobody, want: http.StatusForbidden},
		"metrics without credentials": {path: "/metrics", want: http.StatusUnauthorized},
		"sources": {path: "/sources", token: reader, want: http.StatusOK, wantBody: []string{
			`"kubelets":{"nodes":2,"healthy":2,"pending":0,"verified":2,"newestSample":"`,
		}},
		"sources for nobody":          {path: "/sources", token: nobody, want: http.StatusForbidden},
		"sources without credentials": {path: "/sources", want: http.StatusUnauthorized},
		"profiles for a reader":       {path: "/debug/pprof/", token: reader, want: http.StatusForbidden},
		"version":                     {path: "/version", token: reader, want: http.StatusOK, wantBody: []string{`"gitVersion": "v0.1.0"`, `"major": "0"`, `"minor": "1"`}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			// Gauges of the store are written every few seconds.
			outcome.Eventually(t, 30*time.Second, tc.path, func(context.Context) error {
				status, body, err := p.get(t.Context(), tc.path, tc.token)
				if err != nil {
					return err
				}
				if status != tc.want {
					return fmt.Errorf("status %d, want %d: %s", status, tc.want, body)
				}
				for _, part := range tc.wantBody {
					if !strings.Contains(body, part) {
						return fmt.Errorf("%q is missing in %d bytes", part, len(body))
					}
				}
				return nil
			})
		})
	}
}
