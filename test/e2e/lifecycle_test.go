// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
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
		spec.ResourceMetrics.RemoveDespiteConsumers = []v1alpha1.ResourceMetricsVersion{v1alpha1.ResourceMetricsV1}
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

// Another port rolls the pods. Pods of both ports are endpoints of the Service
// meanwhile, and no request fails.
func TestServingPortChanged(t *testing.T) {
	requireBackend(t)
	restoreBackend(t)
	load := startTraffic(t, trafficPaths...)
	for _, port := range []*int32{ptr.To[int32](10443), nil} {
		editBackend(t, func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Port = port })
		waitReady(t)
		var pods corev1.PodList
		if err := suite.client.List(t.Context(), &pods, serving()...); err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods.Items {
			if got, want := pod.Spec.Containers[0].Ports[0].ContainerPort, ptr.Deref(port, 10250); got != want && pod.DeletionTimestamp == nil {
				t.Errorf("pod %s has port %d, want %d", pod.Name, got, want)
			}
		}
	}
	load.finish(t, "while the port of the serving pods changed")
}

// A Secret that does not exist stalls the backend with a message that names it,
// nothing that works is touched, and the Secret's arrival ends it.
func TestMissingSecretStalls(t *testing.T) {
	requireBackend(t)
	const secret = "e2e-pull-secret"
	load := startTraffic(t, trafficPaths...)
	changeBackend(t, func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Serving.ImagePullSecrets = []corev1.LocalObjectReference{{Name: secret}}
	})
	stalled := waitCondition(t, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonSecretMissing)
	if !strings.Contains(stalled.Message, secret) {
		t.Errorf("the message does not name the Secret: %s", stalled.Message)
	}
	kubectl(t, "create", "secret", "docker-registry", secret, "-n", namespace,
		"--docker-server=registry.example.com", "--docker-username=u", "--docker-password=p")
	t.Cleanup(func() { _, _ = run("kubectl", "delete", "secret", secret, "-n", namespace, "--ignore-not-found") })
	waitReady(t)
	load.finish(t, "while a Secret was missing")
}

// Deleting the MetricsBackend removes everything, APIServices first, and
// namespaces can be deleted while it happens.
func TestDeletion(t *testing.T) {
	requireBackend(t)
	kubectl(t, "create", "namespace", "e2e-canary")
	kubectl(t, "delete", "metricsbackend", backendName, "--wait=false")
	kubectl(t, "delete", "namespace", "e2e-canary", "--timeout=120s")
	kubectl(t, "wait", "--for=delete", "metricsbackend/"+backendName, "--timeout=120s")

	nothingIsLeft(t)
	// Later tests need this figure, and there is no backend now.
	measureNamespaces(t)
}
