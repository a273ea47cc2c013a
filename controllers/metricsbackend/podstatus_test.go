// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// The status tells of each pod what it serves: an administrator cannot ask one.
func TestPodsInStatus(t *testing.T) {
	t.Parallel()
	w, r := ready(t)
	want := []v1alpha1.ServingPodStatus{
		{Name: "pod-001", Image: imageBoth, Ready: true, UpToDate: true, Versions: []string{"v1.metrics.k8s.io", "v1beta1.metrics.k8s.io"}},
		{Name: "pod-002", Image: imageBoth, Ready: true, UpToDate: true, Versions: []string{"v1.metrics.k8s.io", "v1beta1.metrics.k8s.io"}},
	}
	serving := w.backend().Status.Serving
	if diff := cmp.Diff(want, serving.Pods); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if serving.CertificateNotAfter == nil || !serving.CertificateNotAfter.After(w.clock.Now()) {
		t.Errorf("certificateNotAfter is %v", serving.CertificateNotAfter)
	}

	// That a request through kube-apiserver fails says nothing of pods.
	w.refused = true
	pod := w.pods()[0]
	pod.Status.Conditions = nil
	w.updateStatus(&pod)
	mustReconcile(t, r)
	if got := w.backend().Status.Serving.Pods[0]; got.Name != pod.Name || got.Ready {
		t.Errorf("a pod that is not ready any more: %+v", got)
	}
	w.refused = false
	w.settle(r, func() bool { return w.isReady() && w.backend().Status.Serving.Pods[0].Ready })

	mustReconcile(t, r)
	before := w.backend().Status
	w.mute = true
	mustReconcile(t, r)
	if diff := cmp.Diff(before, w.backend().Status); diff != "" {
		t.Errorf("the status while pods may answer in a moment (-before +after):\n%s", diff)
	}
	w.clock.Step(servingGrace)
	mustReconcile(t, r)
	for _, kind := range []string{v1alpha1.ConditionServingReady, v1alpha1.ConditionSourcesHealthy, v1alpha1.ConditionConsumersCompatible} {
		if c := w.condition(kind); c.Status == metav1.ConditionTrue {
			t.Errorf("%s is %+v", kind, c)
		}
	}
	for i := range want {
		want[i].Versions, want[i].Message = nil, "cannot be asked: dial: connection refused"
	}
	if diff := cmp.Diff(want, w.backend().Status.Serving.Pods); diff != "" {
		t.Errorf("pods that do not answer (-want +got):\n%s", diff)
	}
}
