// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// A version that leaves the spec stays for the clients that used it, and says for
// whom. Once the spec says so all the same it leaves discovery, while clients of the
// other version go on without a failure; it comes back when the spec names it again.
func TestVersionDroppedAndAdded(t *testing.T) {
	requireBackend(t)
	load := startTraffic(t, "/apis/metrics.k8s.io/v1beta1/nodes")
	kubectl(t, "top", "nodes")
	changeBackend(t, func(spec *v1alpha1.MetricsBackendSpec) {
		spec.ResourceMetrics.Versions = []v1alpha1.ResourceMetricsVersion{v1alpha1.ResourceMetricsV1beta1}
	})
	kept := waitCondition(t, v1alpha1.ConditionConsumersCompatible, metav1.ConditionFalse, v1alpha1.ReasonConsumersActive)
	waitCondition(t, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonConsumersActive)
	waitCondition(t, v1alpha1.ConditionAvailable, metav1.ConditionTrue, "")
	if !strings.Contains(kept.Message, "v1.metrics.k8s.io is no longer in spec.resourceMetrics.versions") || !strings.Contains(kept.Message, "kubectl") {
		t.Errorf("the message names no version or no client: %s", kept.Message)
	}
	if _, err := getAPIService(t.Context(), "v1"); err != nil {
		t.Errorf("v1 was taken from kubectl: %v", err)
	}
	editBackend(t, func(spec *v1alpha1.MetricsBackendSpec) {
		spec.RemoveDespiteConsumers = []string{"v1.metrics.k8s.io"}
	})
	waitCondition(t, v1alpha1.ConditionConsumersCompatible, metav1.ConditionTrue, v1alpha1.ReasonRemovalForced)
	backend := waitReady(t)
	if _, err := getAPIService(t.Context(), "v1"); !apierrors.IsNotFound(err) {
		t.Errorf("APIService v1 should be gone, got %v", err)
	}
	if out := kubectl(t, "get", "--raw", "/apis/metrics.k8s.io"); strings.Contains(out, "metrics.k8s.io/v1\"") {
		t.Errorf("v1 is still in discovery: %s", out)
	}
	if got := backend.Status.RegisteredVersions; got != "v1beta1" {
		t.Errorf("registeredVersions = %q", got)
	}
	// kubectl falls back to v1beta1 (KEP-5207).
	kubectl(t, "top", "nodes")

	editBackend(t, func(spec *v1alpha1.MetricsBackendSpec) { spec.ResourceMetrics.Versions = nil })
	backend = waitReady(t)
	if got := backend.Status.RegisteredVersions; got != "v1, v1beta1" {
		t.Errorf("registeredVersions = %q", got)
	}
	load.finish(t, "while v1 went and came")
}

// Deleting the MetricsBackend removes everything, APIServices first, and namespaces can be deleted while it happens. Argo
// CD prunes in the foreground: the garbage collector then deletes whatever an ownerReference points to at once. Children
// have none, so that versions leave discovery while pods serve them, and no request gets a 5xx.
func TestDeletion(t *testing.T) {
	requireBackend(t)
	load := startTraffic(t, trafficPaths...)
	kubectl(t, "create", "namespace", "e2e-namespace")
	outcome.Eventually(t, time.Minute, "requests are answered", func(context.Context) error {
		load.mu.Lock()
		defer load.mu.Unlock()
		if load.answered < 50 || len(load.failures) > 0 {
			return fmt.Errorf("%d answers, %d failures: %v", load.answered, len(load.failures), load.failures)
		}
		return nil
	})
	kubectl(t, "delete", "metricsbackend", backendName, "--cascade=foreground", "--wait=false")
	kubectl(t, "delete", "namespace", "e2e-namespace", "--timeout=120s")
	kubectl(t, "wait", "--for=delete", "metricsbackend/"+backendName, "--timeout=120s")
	nothingIsLeft(t)

	total, failures := load.result()
	notFound := 0
	for _, failure := range failures {
		// A version that is not registered answers 404, which tells a client so.
		if strings.Contains(failure, "could not find the requested resource") {
			notFound++
			continue
		}
		outcome.Unsafe(t, "%s", failure)
	}
	if notFound == 0 || notFound == total {
		t.Errorf("%d of %d requests got 404: the load was not there before and after", notFound, total)
	}
	// Later tests need this figure, and there is no backend now.
	measureNamespaces(t)
}
