// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Kubelets with self-signed certificates, as kubeadm and kind make them: nothing
// is scraped until the user chooses, and the condition says what there is to
// choose from. Pinning, live and without a rollout, brings the samples back.
func TestSelfSignedKubelet(t *testing.T) {
	requireBackend(t)
	waitServing(t, 2)
	before := readyPods(t.Context(), t)
	cluster(t, "up", "--kubelet-certificate=self-signed")
	t.Cleanup(func() { cluster(t, "up", "--kubelet-certificate=signed") })

	unhealthy := waitCondition(t, v1alpha1.ConditionSourcesHealthy, metav1.ConditionFalse, v1alpha1.ReasonKubeletCertificatesUntrusted)
	for _, want := range []string{"node-1", "serverTLSBootstrap", "PinOnFirstUse", "Skip", "kubectl patch"} {
		if !strings.Contains(unhealthy.Message, want) {
			t.Errorf("the remedy does not speak of %q: %s", want, unhealthy.Message)
		}
	}
	changeBackend(t, func(spec *v1alpha1.MetricsBackendSpec) {
		spec.ResourceMetrics.KubeletTLS.Mode = v1alpha1.KubeletTLSPinOnFirstUse
	})
	waitCondition(t, v1alpha1.ConditionSourcesHealthy, metav1.ConditionTrue, "")
	waitReady(t)
	if after := readyPods(t.Context(), t); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("a change of kubeletTLS rolled pods: %v before, %v after", before, after)
	}
}
