// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

const (
	crdSchema = "/spec/versions/0/schema/openAPIV3Schema/properties"
	crdOfTest = "crd/metricsbackends.metricsbackend.io"
)

// changeCRD changes the CRD by a JSON patch until the test ends, and waits until kube-apiserver uses it.
func changeCRD(t *testing.T, suite *controlPlane, patch string, used func() error) {
	t.Helper()
	t.Cleanup(func() {
		if out, err := kubectl(suite, "apply", "--server-side", "--force-conflicts", "-k", "config/crd"); err != nil {
			t.Errorf("restore the CRD: %v: %s", err, out)
		}
	})
	mustKubectl(t, suite, "patch", crdOfTest, "--type=json", "-p", patch)
	outcome.Eventually(t, patience, "kube-apiserver uses the changed CRD", func(context.Context) error { return used() })
}

// With a CRD that lacks fields of the status, everything works, Ready says what to do, and nothing is written over and
// over. Once the CRD is of the operator's release, the status is complete.
func TestCRDOlderThanOperator(t *testing.T) {
	suite := take(t)
	explain := func() error {
		if out, err := kubectl(suite, "explain", "metricsbackends.status.serving.pods"); err == nil {
			return fmt.Errorf("it knows %.100s", out)
		}
		return nil
	}
	changeCRD(t, suite, `[{"op":"remove","path":"`+crdSchema+`/status/properties/serving/properties/pods"}]`, explain)
	createBackend(t, suite, newBackend("cluster"))
	ready := func(says bool) *v1alpha1.MetricsBackend {
		t.Helper()
		var backend *v1alpha1.MetricsBackend
		outcome.Eventually(t, patience, fmt.Sprintf("Ready, and it says that the CRD is older: %t", says), func(context.Context) error {
			backend = getBackend(t, suite, "cluster")
			c := condition(backend, v1alpha1.ConditionReady)
			if c.Status != metav1.ConditionTrue || strings.Contains(c.Message, "the CRD is older than the operator") != says {
				return fmt.Errorf("%s", show(backend))
			}
			return nil
		})
		return backend
	}
	if backend := ready(true); len(backend.Status.Serving.Pods) > 0 {
		t.Errorf("the CRD is not older: pods are %v", backend.Status.Serving.Pods)
	}
	settled(t, suite)

	mustKubectl(t, suite, "apply", "--server-side", "--force-conflicts", "-k", "config/crd")
	// The operator does not watch CRDs: it looks each minute, or when one of its objects changes.
	outcome.Eventually(t, patience, "kube-apiserver uses the current CRD", func(context.Context) error {
		if explain() == nil {
			return fmt.Errorf("status.serving.pods is unknown")
		}
		return nil
	})
	recheck(t, suite)
	if backend := ready(false); len(backend.Status.Serving.Pods) == 0 {
		t.Error("the status still lacks the pods")
	}
}

// With a CRD of a later release, the operator keeps fields that it does not know.
func TestCRDNewerThanOperator(t *testing.T) {
	suite := take(t)
	changeCRD(t, suite, `[{"op":"add","path":"`+crdSchema+`/spec/properties/future","value":{"type":"object","properties":{"mode":{"type":"string","default":"new"}}}}]`,
		func() error {
			_, err := kubectl(suite, "explain", "metricsbackends.spec.future")
			return err
		})
	backend := unstructuredOf(map[string]any{
		"apiVersion": "metricsbackend.io/v1alpha1", "kind": "MetricsBackend", "metadata": map[string]any{"name": "cluster"},
		"spec": map[string]any{"resourceMetrics": map[string]any{}, "future": map[string]any{}},
	})
	if err := suite.admin.Create(t.Context(), backend); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteBackend(t, suite, "cluster") })
	waitReady(t, suite, "cluster")
	if err := suite.admin.Get(t.Context(), client.ObjectKey{Name: "cluster"}, backend); err != nil {
		t.Fatal(err)
	}
	if mode, _, _ := unstructured.NestedString(backend.Object, "spec", "future", "mode"); mode != "new" || backend.GetGeneration() != 1 {
		t.Errorf("generation %d, spec.future.mode is %q", backend.GetGeneration(), mode)
	}
}

// recheck has kube-apiserver look at once whether it reaches the Services of the
// APIServices, which it does each half minute, or when they change; the operator looks, too.
func recheck(t *testing.T, suite *controlPlane) {
	t.Helper()
	for _, version := range []string{"v1", "v1beta1"} {
		outcome.Eventually(t, patience, "touch APIService "+version, func(ctx context.Context) error {
			service, err := getAPIService(ctx, suite, version)
			if err != nil {
				return err
			}
			service.Annotations = map[string]string{"test.example/recheck": strconv.FormatInt(time.Now().UnixNano(), 10)}
			return suite.admin.Update(ctx, service)
		})
	}
}
