// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// requireBackend applies the sample unless it is there, and waits until it is
// Available and Ready.
func requireBackend(t *testing.T) *v1alpha1.MetricsBackend {
	t.Helper()
	kubectl(t, "apply", "--server-side", "--force-conflicts", "-k", "config/samples")
	return waitReady(t)
}

func waitReady(t *testing.T) *v1alpha1.MetricsBackend {
	t.Helper()
	for _, condition := range []string{v1alpha1.ConditionAvailable, v1alpha1.ConditionReady} {
		waitCondition(t, condition, metav1.ConditionTrue, "")
	}
	return getBackend(t)
}

func getBackend(t *testing.T) *v1alpha1.MetricsBackend {
	t.Helper()
	var backend v1alpha1.MetricsBackend
	if err := suite.client.Get(t.Context(), ctrlclient.ObjectKey{Name: backendName}, &backend); err != nil {
		t.Fatalf("get MetricsBackend %q: %v", backendName, err)
	}
	return &backend
}

// waitCondition waits until the current generation has the condition with that
// status and, unless it is empty, that reason. It returns the condition.
func waitCondition(t *testing.T, kind string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	t.Helper()
	var found *metav1.Condition
	outcome.Eventually(t, 3*time.Minute, fmt.Sprintf("condition %s=%s %s", kind, status, reason), func(ctx context.Context) error {
		var backend v1alpha1.MetricsBackend
		if err := suite.client.Get(ctx, ctrlclient.ObjectKey{Name: backendName}, &backend); err != nil {
			return err
		}
		found = meta.FindStatusCondition(backend.Status.Conditions, kind)
		switch {
		case found == nil:
			return fmt.Errorf("no such condition; all: %+v", backend.Status.Conditions)
		case found.ObservedGeneration != backend.Generation:
			return fmt.Errorf("speaks of generation %d, not %d", found.ObservedGeneration, backend.Generation)
		case found.Status != status, reason != "" && found.Reason != reason:
			return fmt.Errorf("is %s, %s: %s", found.Status, found.Reason, found.Message)
		}
		return nil
	})
	return found
}

// changeBackend changes the spec of the sample and puts it back after the test.
func changeBackend(t *testing.T, change func(*v1alpha1.MetricsBackendSpec)) {
	t.Helper()
	restoreBackend(t)
	editBackend(t, change)
}

// editBackend changes the spec of the sample.
func editBackend(t *testing.T, change func(*v1alpha1.MetricsBackendSpec)) {
	t.Helper()
	outcome.Eventually(t, 30*time.Second, "update the MetricsBackend", func(ctx context.Context) error {
		var backend v1alpha1.MetricsBackend
		if err := suite.client.Get(ctx, ctrlclient.ObjectKey{Name: backendName}, &backend); err != nil {
			return err
		}
		change(&backend.Spec)
		return suite.client.Update(ctx, &backend)
	})
}

// restoreBackend puts the spec of the sample back, as it is now, after the test.
func restoreBackend(t *testing.T) {
	t.Helper()
	restorePart(t, func(spec, before *v1alpha1.MetricsBackendSpec) { *spec = *before })
}

// restorePart puts what restore takes from the spec as it is now back after the test;
// tests beside it may change the rest.
func restorePart(t *testing.T, restore func(spec, before *v1alpha1.MetricsBackendSpec)) {
	t.Helper()
	before := getBackend(t).Spec
	t.Cleanup(func() {
		// The test's own context has ended by now.
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			var backend v1alpha1.MetricsBackend
			if err := suite.client.Get(context.Background(), ctrlclient.ObjectKey{Name: backendName}, &backend); err != nil {
				return err
			}
			restore(&backend.Spec, before.DeepCopy())
			return suite.client.Update(context.Background(), &backend)
		})
		if ctrlclient.IgnoreNotFound(err) != nil {
			outcome.Unsafe(t, "restore the MetricsBackend: %v", err)
		}
	})
}

func getAPIService(ctx context.Context, version string) (*apiregistrationv1.APIService, error) {
	var service apiregistrationv1.APIService
	err := suite.client.Get(ctx, ctrlclient.ObjectKey{Name: version + ".metrics.k8s.io"}, &service)
	return &service, err
}

// serving lists the objects that belong to the sample in the serving namespace.
func serving() []ctrlclient.ListOption {
	return []ctrlclient.ListOption{ctrlclient.InNamespace(namespace), backendLabel()}
}

// backendLabel selects the objects that belong to the sample.
func backendLabel() ctrlclient.MatchingLabels {
	return ctrlclient.MatchingLabels{v1alpha1.LabelBackend: backendName}
}
