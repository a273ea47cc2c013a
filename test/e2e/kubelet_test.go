// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// A cluster whose kubelets have self-signed certificates, as kubeadm and kind make them, has
// metrics after the sample is applied, with nothing to choose.
func TestSelfSignedKubelet(t *testing.T) {
	requireBackend(t)
	// Only without a MetricsBackend it is forgotten that kubelets were signed.
	kubectl(t, "delete", "metricsbackend", backendName, "--cascade=foreground", "--timeout=120s")
	selfSignedKubelet(t)

	backend := requireBackend(t)
	if nodes := kubectl(t, "top", "nodes", "--no-headers"); !strings.Contains(nodes, "node-1") {
		t.Errorf("kubectl top nodes:\n%s", nodes)
	}
	healthy := waitCondition(t, v1alpha1.ConditionSourcesHealthy, metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
	if want := "pinned on first use: 1"; !strings.Contains(healthy.Message, want) {
		t.Errorf("the message does not say %q: %s", want, healthy.Message)
	}
	if mode := backend.Spec.ResourceMetrics.KubeletTLS.Mode; mode != v1alpha1.KubeletTLSVerifyOrPin || backend.Status.KubeletsVerified {
		t.Errorf("mode %s, kubelets verified: %t", mode, backend.Status.KubeletsVerified)
	}
}

// Where kubelets were signed, nothing is scraped once they are not: the condition says what there
// is to choose from. A choice brings the samples back, live and without a rollout.
func TestSignedKubeletIsNeverPinned(t *testing.T) {
	requireBackend(t)
	waitServing(t, 2)
	outcome.Eventually(t, time.Minute, "a kubelet is verified", func(context.Context) error {
		if !getBackend(t).Status.KubeletsVerified {
			return errors.New("the status does not say so")
		}
		return nil
	})
	before := readyPods(t.Context(), t)
	selfSignedKubelet(t)

	unhealthy := waitCondition(t, v1alpha1.ConditionSourcesHealthy, metav1.ConditionFalse, v1alpha1.ReasonKubeletCertificatesUntrusted)
	for _, want := range []string{"node-1", "not pinned", "serverTLSBootstrap", "PinOnFirstUse", "InsecureSkipTLSVerify", "kubectl patch"} {
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

// selfSignedKubelet has the kubelet sign its certificate until the test ends.
func selfSignedKubelet(t *testing.T) {
	t.Helper()
	cluster(t, "up", "--kubelet-certificate=self-signed")
	t.Cleanup(func() { cluster(t, "up", "--kubelet-certificate=signed") })
}
