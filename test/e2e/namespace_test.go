// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
	"github.com/metricsbackend/metrics-backend-operator/test/runbooks"
)

// The namespace of operator and serving is deleted under a MetricsBackend, the
// wrong way round. The operator takes the versions out of discovery before it
// ends, so the deletion finishes, as that of every other namespace does
// (kubernetes/kubernetes#83332). A new operator brings everything back.
func TestOperatorNamespaceDeleted(t *testing.T) {
	requireBackend(t)
	kubectl(t, "create", "namespace", "e2e-namespace")
	kubectl(t, "delete", "namespace", namespace, "--timeout=180s")
	for _, version := range []string{"v1", "v1beta1"} {
		if _, err := getAPIService(t.Context(), version); !apierrors.IsNotFound(err) {
			t.Errorf("APIService %s should be gone with its server, got %v", version, err)
		}
	}
	kubectl(t, "delete", "namespace", "e2e-namespace", "--timeout=60s")
	if out, err := run(filepath.Join(suite.root, "hack/deploy.sh")); err != nil {
		t.Fatalf("deploy the operator again: %v\n%s", err, out)
	}
	waitReady(t)
}

// The manifest is deleted before the MetricsBackend, which does not end: the operator that the finalizer waits for loses
// its permissions at once, or does not run at all. After the commands of the page nothing is stale.
func TestManifestDeletedFirst(t *testing.T) {
	page := runbooks.ReadSection(t, filepath.Join(suite.root, "docs/tasks/uninstall.md"), "If you deleted the operator or the manifest first")
	manifest := filepath.Join(t.TempDir(), "install.yaml")
	if out, err := run("bash", "-c", "hack/render.sh >$0", manifest); err != nil {
		t.Fatalf("render the manifest: %v\n%s", err, out)
	}
	for name, prepare := range map[string]func(*testing.T){
		"with an operator": func(*testing.T) {},
		"without an operator": func(t *testing.T) {
			kubectl(t, "scale", "-n", namespace, "deployment/metrics-backend-operator", "--replicas=0")
			kubectl(t, "wait", "-n", namespace, "--for=delete", "pods", "-l", "app.kubernetes.io/name=metrics-backend-operator", "--timeout=60s")
		},
	} {
		t.Run(name, func(t *testing.T) {
			requireBackend(t)
			t.Cleanup(func() {
				if out, err := run(filepath.Join(suite.root, "hack/deploy.sh")); err != nil {
					t.Errorf("install the operator again: %v\n%s", err, out)
				}
			})
			prepare(t)
			kubectl(t, "delete", "-f", manifest, "--wait=false")
			outcome.Eventually(t, 2*time.Minute, "all pods have ended", func(context.Context) error {
				out, err := run("kubectl", "get", "pods", "-n", namespace, "-o", "name")
				if err != nil || strings.Contains(out, "pod/") {
					return fmt.Errorf("left: %s (%v)", out, err)
				}
				return nil
			})
			t.Logf("left before the commands of the page:\n%s%s", kubectl(t, "get", "metricsbackends", "-o", "name"),
				kubectl(t, "get", "apiservices,clusterroles,clusterrolebindings", "-l", "metricsbackend.io/backend", "-o", "name"))

			runBlocks(t, "uninstall.md", page)
			kubectl(t, "delete", "-f", manifest, "--ignore-not-found", "--timeout=2m")
			nothingIsLeft(t)
			kubectl(t, "create", "namespace", "e2e-namespace")
			kubectl(t, "delete", "namespace", "e2e-namespace", "--timeout=60s")
		})
	}
}
