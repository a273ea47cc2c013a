//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
)

// startAlone runs a process on one node, from a manifest on disk, as a user may.
func startAlone(t *testing.T, service string, args ...string) (*process, *fakeKubelet) {
	t.Helper()
	kubelet := cluster.startNode(t, "node-"+service, map[string]string{nodesOf: service})
	return startOn(t, service, args...), kubelet
}

// startOn runs another process on the node that startAlone made.
func startOn(t *testing.T, service string, args ...string) *process {
	t.Helper()
	file := cluster.writeFile(t, t.TempDir(), "backend.yaml", []byte(fastScrapes(service)))
	return cluster.startServing(t, service, append([]string{"--backend-file=" + file}, args...)...)
}

// TestRuntimeConfig: a disabled version is neither served nor in discovery.
func TestRuntimeConfig(t *testing.T) {
	beside(t)
	p, _ := startAlone(t, "limited", "--runtime-config=metrics.k8s.io/v1=false")
	p.waitReady(t)
	reader := cluster.token(t, "reader")
	for path, want := range map[string]int{
		"/apis/metrics.k8s.io/v1beta1/nodes": http.StatusOK,
		"/apis/metrics.k8s.io/v1beta1":       http.StatusOK,
		"/apis/metrics.k8s.io/v1/nodes":      http.StatusNotFound,
		"/apis/metrics.k8s.io/v1":            http.StatusNotFound,
	} {
		status, body, err := p.get(t.Context(), path, reader)
		if err != nil || status != want {
			t.Errorf("%s: status %d, %v, want %d: %s", path, status, err, want, body)
		}
	}

	document, err := aggregatedDiscoveryOf(t, p, reader)
	if err != nil {
		t.Fatalf("get aggregated discovery: %v", err)
	}
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(document, &list); err != nil {
		t.Fatalf("decode %s: %v", document, err)
	}
	var versions []string
	for _, g := range list.Items {
		for _, v := range g.Versions {
			versions = append(versions, g.Name+"/"+v.Version)
			if len(v.Resources) == 0 {
				t.Errorf("%s/%s has no resources, so that clients do not cache it", g.Name, v.Version)
			}
		}
	}
	want := []string{
		"canary.metricsbackend.io/v1alpha1",
		"metrics.k8s.io/v1beta1", "custom.metrics.k8s.io/v1beta2", "custom.metrics.k8s.io/v1beta1", "external.metrics.k8s.io/v1beta1",
	}
	if diff := cmp.Diff(want, versions); diff != "" {
		t.Errorf("aggregated discovery (-want +got):\n%s", diff)
	}
}

// TestAudit: the usual audit flags log the user and the resource of each request.
func TestAudit(t *testing.T) {
	beside(t)
	folder := t.TempDir()
	policy := cluster.writeFile(t, folder, "policy.yaml", []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"))
	log := filepath.Join(folder, "audit.log")
	p, _ := startAlone(t, "audited", "--audit-policy-file="+policy, "--audit-log-path="+log)
	p.waitReady(t)
	if status, body, err := p.get(t.Context(), "/apis/metrics.k8s.io/v1/nodes", cluster.token(t, "reader")); err != nil || status != http.StatusOK {
		t.Fatalf("list nodes: status %d, %v: %s", status, err, body)
	}
	outcome.Eventually(t, 20*time.Second, "the request is in the audit log", func(context.Context) error {
		content, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(content)) {
			if strings.Contains(line, `"username":"system:serviceaccount:metrics-backend:reader"`) && strings.Contains(line, `"resource":"nodes"`) {
				return nil
			}
		}
		return fmt.Errorf("not in %d bytes", len(content))
	})
}

// TestKubeAPIServerRestart: a running pod stays ready and keeps scraping, one that starts meanwhile waits and logs why,
// and both recover without a restart.
func TestKubeAPIServerRestart(t *testing.T) {
	p, kubelet := startAlone(t, "lasting")
	p.waitReady(t)
	cluster.register(t, "lasting", p.port, "v1", "v1beta1")
	through := func(ctx context.Context) error { return wantCount(ctx, "/apis/metrics.k8s.io/v1/nodes", 1) }
	outcome.Eventually(t, time.Minute, "metrics through kube-apiserver", through)

	// The late process needs its token before kube-apiserver goes.
	kubeconfig := cluster.writeKubeconfig(t, t.TempDir(), servingAccount)
	startAPIServer := cluster.stopAPIServer(t)
	late := cluster.startServingAs(t, "late", kubeconfig, "--backend-file="+cluster.writeFile(t, t.TempDir(), "backend.yaml", []byte(fastScrapes("lasting"))))
	outcome.Eventually(t, 20*time.Second, "the late process lives and explains itself", func(context.Context) error {
		status, body, err := late.get(t.Context(), "/livez", "")
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("/livez: status %d, %w: %s", status, err, body)
		}
		return late.logged("Cannot use all of the ConfigMap by which kube-apiserver's requests are recognized")
	})
	if err := late.ready(t.Context()); err == nil || !strings.Contains(err.Error(), "[-]authentication-config failed") {
		t.Errorf("the late process's readiness: %v, want it to wait for authentication-config", err)
	}
	if status, _, err := late.get(t.Context(), "/apis/metrics.k8s.io/v1/nodes", ""); err != nil || status != http.StatusUnauthorized {
		t.Errorf("the late process answers status %d, %v, want 401", status, err)
	}
	since := time.Now()
	outcome.Eventually(t, 20*time.Second, "scrapes go on", func(context.Context) error {
		if err := p.ready(t.Context()); err != nil {
			t.Fatalf("the started process is no longer ready: %v", err)
		}
		if n := kubelet.requests(since); n < 5 {
			return fmt.Errorf("%d scrapes", n)
		}
		return nil
	})

	startAPIServer()
	outcome.Eventually(t, 2*time.Minute, "metrics through kube-apiserver again", through)
	outcome.Eventually(t, 2*time.Minute, "the late process becomes ready", func(context.Context) error { return late.ready(t.Context()) })
}
