// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// One request that times out changes no condition. What goes on is told, and takes
// back nothing of what else is known: metrics-server does not owe v1.
func TestOneSilentEndpoint(t *testing.T) {
	w := prepared(t, "existing", existingWorld)
	r := w.live(interceptor.Funcs{})
	w.scaleMetricsServer(1, v1beta1)
	mustReconcile(t, r)
	before := w.backend().Status
	w.theirs.mute["192.168.0.1:10250"] = errors.New("no answer within 5s")
	result, err := reconcileOnce(t, r)
	if err != nil || result.RequeueAfter > soonAgain {
		t.Errorf("looks again after %s, error %v", result.RequeueAfter, err)
	}
	if diff := cmp.Diff(before, w.backend().Status); diff != "" {
		t.Errorf("status (-before +after):\n%s", diff)
	}
	w.clock.Step(failingPatience)
	mustReconcile(t, r)
	for kind, want := range map[string]metav1.ConditionStatus{
		v1alpha1.ConditionServingReady: metav1.ConditionFalse, v1alpha1.ConditionCertificatesValid: metav1.ConditionTrue,
		v1alpha1.ConditionAPIServicesRegistered: metav1.ConditionTrue, v1alpha1.ConditionAvailable: metav1.ConditionTrue,
	} {
		if c := w.condition(kind); c.Status != want {
			t.Errorf("%s is %+v, want %s", kind, c, want)
		}
	}
	clear(w.theirs.mute)
	w.settle(r, w.isReady)
	if diff := cmp.Diff(before.APIServices, w.backend().Status.APIServices); diff != "" {
		t.Errorf("versions (-before +after):\n%s", diff)
	}
}

// The same of the only pod of ours.
func TestOneSilentPod(t *testing.T) {
	one := int32(1)
	w := newWorld(t, newBackend(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Replicas = &one }))
	r := w.live(interceptor.Funcs{})
	w.settle(r, w.isReady)
	mustReconcile(t, r)
	before := w.backend().Status
	w.mute = true
	mustReconcile(t, r)
	if diff := cmp.Diff(before, w.backend().Status); diff != "" {
		t.Errorf("status (-before +after):\n%s", diff)
	}
	w.clock.Step(failingPatience)
	mustReconcile(t, r)
	for _, kind := range []string{v1alpha1.ConditionServingReady, v1alpha1.ConditionSourcesHealthy, v1alpha1.ConditionConsumersCompatible} {
		if c := w.condition(kind); c.Status == metav1.ConditionTrue {
			t.Errorf("%s is %+v", kind, c)
		}
	}
	w.mute = false
	w.settle(r, w.isReady)
}
