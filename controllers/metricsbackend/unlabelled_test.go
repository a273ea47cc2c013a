// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func (fc *fakeCluster) loseLabel(name string) {
	fc.t.Helper()
	gv, _ := versionOf(name)
	fc.editAPIService(gv, func(s *apiregistrationv1.APIService) { s.Labels = nil })
}

// A version whose APIService lost our label is still in discovery: it is retired before
// pods that do not serve it become ready.
func TestRetireWithoutLabel(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	fc.loseLabel("v1.metrics.k8s.io")
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
		onlyV1beta1(spec)
		spec.Serving.Image = imageV1beta1
	})
	fc.reconcileUntil(r, fc.isReady)
	if fc.isRegistered(v1) {
		t.Errorf("Ready, and v1 still points to the pods\n%s", fc.show())
	}
}

// A version without our label stalls the backend. If a ready pod does not serve it, it is
// retired, which ends the stall.
func TestRetireUnservedWithoutLabel(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	fc.loseLabel("v1.metrics.k8s.io")
	mustReconcile(t, r)
	if c := fc.condition(v1alpha1.ConditionStalled); c.Reason != v1alpha1.ReasonNotOwned {
		t.Fatalf("Stalled is %+v", c)
	}
	if state := fc.state("v1.metrics.k8s.io"); state != v1alpha1.APIServiceAvailable {
		t.Errorf("state %q of a version that answers", state)
	}
	p := fc.pods()[0]
	p.Spec.Containers[0].Image = imageV1beta1
	fc.update(&p)
	fc.violation = "expected by this test"
	for range 6 {
		mustReconcile(t, r)
		fc.discovered[v1] = fc.isRegistered(v1)
	}
	fc.wantRegistered("v1beta1")
	if fc.condition(v1alpha1.ConditionStalled).Status == metav1.ConditionTrue {
		t.Errorf("still stalled:\n%s", fc.show())
	}
	fc.wantCondition(v1alpha1.ConditionServingReady, "", v1alpha1.ReasonVersionNotServed, "pod "+p.Name+" (image serving:v1beta1-only)")
}
