// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// patience is for what takes a second or two when the machine is idle.
const patience = 60 * time.Second

func newBackend(name string, change ...func(*v1alpha1.MetricsBackendSpec)) *v1alpha1.MetricsBackend {
	backend := &v1alpha1.MetricsBackend{ObjectMeta: metav1.ObjectMeta{Name: name}}
	backend.Spec.ResourceMetrics = &v1alpha1.ResourceMetricsSpec{}
	for _, c := range change {
		c(&backend.Spec)
	}
	return backend
}

// createBackend creates a MetricsBackend that the test's end removes.
func createBackend(t *testing.T, suite *controlPlane, backend *v1alpha1.MetricsBackend) *v1alpha1.MetricsBackend {
	t.Helper()
	if err := suite.admin.Create(t.Context(), backend); err != nil {
		t.Fatalf("create MetricsBackend %s: %v", backend.Name, err)
	}
	t.Cleanup(func() { deleteBackend(t, suite, backend.Name) })
	return backend
}

// deleteBackend deletes a MetricsBackend and waits until it is gone. It runs in
// cleanups too, when the test's own context has ended.
func deleteBackend(t *testing.T, suite *controlPlane, name string) {
	t.Helper()
	ctx := context.Background()
	backend := &v1alpha1.MetricsBackend{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := suite.admin.Delete(ctx, backend); client.IgnoreNotFound(err) != nil {
		t.Errorf("delete MetricsBackend %s: %v", name, err)
	}
	if err := outcome.Poll(ctx, 2*patience, func(ctx context.Context) error {
		err := suite.admin.Get(ctx, client.ObjectKey{Name: name}, backend)
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("%+v, %v", backend.Status.Conditions, err)
		}
		return nil
	}); err != nil {
		t.Fatalf("MetricsBackend %s is not gone: %v", name, err)
	}
}

func getBackend(t *testing.T, suite *controlPlane, name string) *v1alpha1.MetricsBackend {
	t.Helper()
	backend := &v1alpha1.MetricsBackend{}
	if err := suite.admin.Get(t.Context(), client.ObjectKey{Name: name}, backend); err != nil {
		t.Fatalf("get MetricsBackend %s: %v", name, err)
	}
	return backend
}

func changeBackend(t *testing.T, suite *controlPlane, name string, change func(*v1alpha1.MetricsBackendSpec)) {
	t.Helper()
	outcome.Eventually(t, patience, "change the MetricsBackend", func(ctx context.Context) error {
		backend := &v1alpha1.MetricsBackend{}
		if err := suite.admin.Get(ctx, client.ObjectKey{Name: name}, backend); err != nil {
			return err
		}
		change(&backend.Spec)
		return suite.admin.Update(ctx, backend)
	})
}

// waitCondition waits until the current generation has the condition.
func waitCondition(t *testing.T, suite *controlPlane, name, kind string, status metav1.ConditionStatus, reason string) *v1alpha1.MetricsBackend {
	t.Helper()
	backend := &v1alpha1.MetricsBackend{}
	outcome.Eventually(t, patience, fmt.Sprintf("condition %s=%s %s", kind, status, reason), func(ctx context.Context) error {
		if err := suite.admin.Get(ctx, client.ObjectKey{Name: name}, backend); err != nil {
			return err
		}
		c := meta.FindStatusCondition(backend.Status.Conditions, kind)
		switch {
		case c == nil, c.ObservedGeneration != backend.Generation, c.Status != status, reason != "" && c.Reason != reason:
			return fmt.Errorf("generation %d: %s", backend.Generation, show(backend))
		}
		return nil
	})
	return backend
}

func waitReady(t *testing.T, suite *controlPlane, name string) *v1alpha1.MetricsBackend {
	t.Helper()
	return waitCondition(t, suite, name, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
}

func show(backend *v1alpha1.MetricsBackend) string {
	out := ""
	for _, c := range backend.Status.Conditions {
		out += fmt.Sprintf("\n  %s=%s (%s, generation %d): %s", c.Type, c.Status, c.Reason, c.ObservedGeneration, c.Message)
	}
	for _, s := range backend.Status.APIServices {
		out += fmt.Sprintf("\n  %s %s: %s", s.Name, s.State, s.Message)
	}
	return out
}

func condition(backend *v1alpha1.MetricsBackend, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(backend.Status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func getAPIService(ctx context.Context, suite *controlPlane, version string) (*apiregistrationv1.APIService, error) {
	service := &apiregistrationv1.APIService{}
	err := suite.admin.Get(ctx, client.ObjectKey{Name: version + ".metrics.k8s.io"}, service)
	return service, err
}
