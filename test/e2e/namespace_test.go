// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// An APIService that someone else owns is left alone, the message says whose it
// is and what to do, and the backend goes on by itself once it is gone.
func TestForeignAPIService(t *testing.T) {
	kubectl(t, "delete", "metricsbackends", "--all", "--timeout=120s")
	const foreign = `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1beta1.metrics.k8s.io"},
		"spec":{"group":"metrics.k8s.io","version":"v1beta1","groupPriorityMinimum":100,"versionPriority":100,
		"insecureSkipTLSVerify":true,"service":{"namespace":"kube-system","name":"metrics-server"}}}`
	if out, err := run("bash", "-c", `kubectl create -f - <<<"$0"`, foreign); err != nil {
		t.Fatalf("create a foreign APIService: %v: %s", err, out)
	}
	t.Cleanup(func() {
		_, _ = run("kubectl", "delete", "apiservice", "v1beta1.metrics.k8s.io", "--ignore-not-found", "-l", "!"+v1alpha1.LabelBackend)
	})
	kubectl(t, "apply", "--server-side", "-k", "config/samples")
	stalled := waitCondition(t, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNotOwned)
	if !strings.Contains(stalled.Message, "kube-system/metrics-server") {
		t.Errorf("the message does not name the owner: %s", stalled.Message)
	}
	service, err := getAPIService(t.Context(), "v1beta1")
	if err != nil || service.Spec.Service.Name != "metrics-server" || !service.Spec.InsecureSkipTLSVerify {
		t.Errorf("the foreign APIService was touched: %v, %+v", err, service.Spec)
	}
	kubectl(t, "delete", "apiservice", "v1beta1.metrics.k8s.io")
	waitReady(t)
}

// The namespace of operator and serving is deleted under a MetricsBackend, the
// wrong way round. The operator takes the versions out of discovery before it
// ends, so the deletion finishes, as that of every other namespace does
// (kubernetes/kubernetes#83332). A new operator brings everything back.
func TestOperatorNamespaceDeleted(t *testing.T) {
	requireBackend(t)
	kubectl(t, "create", "namespace", "e2e-canary")
	kubectl(t, "delete", "namespace", namespace, "--timeout=180s")
	for _, version := range []string{"v1", "v1beta1"} {
		if _, err := getAPIService(t.Context(), version); !apierrors.IsNotFound(err) {
			t.Errorf("APIService %s should be gone with its server, got %v", version, err)
		}
	}
	kubectl(t, "delete", "namespace", "e2e-canary", "--timeout=60s")
	if out, err := run(filepath.Join(suite.root, "hack/deploy.sh")); err != nil {
		t.Fatalf("deploy the operator again: %v\n%s", err, out)
	}
	waitReady(t)
}
