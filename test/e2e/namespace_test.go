// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

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
