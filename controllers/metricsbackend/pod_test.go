// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// The status says what each pod serves: administrators cannot ask pods.
func TestPodsInStatus(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	want := []v1alpha1.ServingPodStatus{
		{Name: "pod-001", Image: imageBoth, Ready: true, UpToDate: true, Versions: []string{"v1.metrics.k8s.io", "v1beta1.metrics.k8s.io"}},
		{Name: "pod-002", Image: imageBoth, Ready: true, UpToDate: true, Versions: []string{"v1.metrics.k8s.io", "v1beta1.metrics.k8s.io"}},
	}
	serving := fc.backend().Status.Serving
	if diff := cmp.Diff(want, serving.Pods); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if serving.CertificateNotAfter == nil || !serving.CertificateNotAfter.After(fc.clock.Now()) {
		t.Errorf("certificateNotAfter is %v", serving.CertificateNotAfter)
	}

	// A failing request through kube-apiserver does not concern pods.
	fc.refused = true
	pod := fc.pods()[0]
	pod.Status.Conditions = nil
	fc.updateStatus(&pod)
	mustReconcile(t, r)
	if got := fc.backend().Status.Serving.Pods[0]; got.Name != pod.Name || got.Ready {
		t.Errorf("a pod that is not ready any more: %+v", got)
	}
	fc.refused = false
	fc.reconcileUntil(r, func() bool { return fc.isReady() && fc.backend().Status.Serving.Pods[0].Ready })

	mustReconcile(t, r)
	before := fc.backend().Status
	fc.unresponsive = true
	mustReconcile(t, r)
	if diff := cmp.Diff(before, fc.backend().Status); diff != "" {
		t.Errorf("the status while pods may answer in a moment (-before +after):\n%s", diff)
	}
	fc.clock.Step(servingGrace)
	mustReconcile(t, r)
	for _, kind := range []string{v1alpha1.ConditionServingReady, v1alpha1.ConditionSourcesHealthy, v1alpha1.ConditionConsumersCompatible} {
		if c := fc.condition(kind); c.Status == metav1.ConditionTrue {
			t.Errorf("%s is %+v", kind, c)
		}
	}
	for i := range want {
		want[i].Versions, want[i].Message = nil, "cannot be asked: dial: connection refused"
	}
	if diff := cmp.Diff(want, fc.backend().Status.Serving.Pods); diff != "" {
		t.Errorf("pods that do not answer (-want +got):\n%s", diff)
	}
}
