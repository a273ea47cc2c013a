// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/aggregator"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

func ready(t *testing.T, funcs ...interceptor.Funcs) (*fakeCluster, *Reconciler) {
	t.Helper()
	fc := prepared(t, "ready", becomeReady)
	r := fc.reconciler(funcs...)
	mustReconcile(t, r)
	return fc, r
}

func becomeReady(fc *fakeCluster) { fc.reconcileUntil(fc.reconciler(), fc.isReady) }

func onlyV1beta1(spec *v1alpha1.MetricsBackendSpec) {
	spec.ResourceMetrics.Versions = []v1alpha1.ResourceMetricsVersion{"v1beta1"}
}

func bothVersions(spec *v1alpha1.MetricsBackendSpec) {
	spec.ResourceMetrics.Versions = []v1alpha1.ResourceMetricsVersion{"v1", "v1beta1"}
}

func mustReconcile(t *testing.T, r *Reconciler) {
	t.Helper()
	if _, err := reconcileOnce(t, r); err != nil {
		t.Fatal(err)
	}
}

func (fc *fakeCluster) state(name string) v1alpha1.APIServiceState {
	for _, s := range fc.backend().Status.APIServices {
		if s.Name == name {
			return s.State
		}
	}
	return ""
}

// If kube-apiservers cannot be reached, the operator waits for DiscoveryDelay, once for all versions.
func TestRetireWaitsForDiscovery(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	fc.unreachable = true
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) { withAllGroups(spec); spec.ResourceMetrics = nil })
	mustReconcile(t, r) // asks who uses it
	mustReconcile(t, r)
	mustReconcile(t, r)
	fc.clock.Step(aggregator.DiscoveryDelay - time.Second)
	mustReconcile(t, r)
	c := fc.condition(v1alpha1.ConditionStaleAPIServicesRemoved)
	if c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "cannot be read, so this waits 1m30s") {
		t.Fatalf("before the delay is over: %+v", c)
	}
	fc.clock.Step(2 * time.Second)
	mustReconcile(t, r)
	fc.wantCondition(v1alpha1.ConditionStaleAPIServicesRemoved, metav1.ConditionTrue, "")
}

// A version that the spec names again while it is retiring is retired, then registered
// again.
func TestRetireIsFinished(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	fc.change(onlyV1beta1)
	mustReconcile(t, r) // asks who uses it
	mustReconcile(t, r)
	fc.change(bothVersions)
	mustReconcile(t, r)
	fc.wantRegistered("v1beta1")
	fc.reconcileUntil(r, fc.isReady)
	fc.wantRegistered("v1", "v1beta1")
}

// A version that this binary does not know is retired, too: a newer operator may have
// registered it.
func TestRetireUnknownVersion(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	future := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{
		Name: "v3.metrics.k8s.io", Labels: map[string]string{v1alpha1.LabelBackend: backendName},
	}}
	fc.create(future)
	fc.reconcileUntil(r, func() bool { return len(fc.apiServices()) == 2 && fc.isReady() })
}

// An APIService that another manager takes over while it is retiring stays.
func TestRetireKeepsAPIServicesOfOthers(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	fc.change(onlyV1beta1)
	mustReconcile(t, r)
	fc.editAPIService(v1, func(s *apiregistrationv1.APIService) {
		s.Labels = nil
		s.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "kube-system", Name: "theirs"}
	})
	fc.reconcileUntil(r, fc.isReady)
	fc.wantPointsTo(v1, "kube-system/theirs")
}

func TestVersionOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"v1.metrics.k8s.io": true, "v1.": true, "v1": false, "": false} {
		gv, ok := manifests.VersionOf(name)
		if ok != want || ok && apiServiceName(gv) != name {
			t.Errorf("%q: %v, %t", name, gv, ok)
		}
	}
}

// RetireAll removes the APIServices that point to the operator's own namespace, with and
// without our label, and no others.
func TestRetireAll(t *testing.T) {
	t.Parallel()
	elsewhere := newBackend(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Namespace = "other-ns" })
	elsewhere.Name, elsewhere.UID = "elsewhere", "uid-elsewhere"
	other := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{
		Name: "v1beta1.custom.metrics.k8s.io", Labels: map[string]string{v1alpha1.LabelBackend: "elsewhere"},
	}}
	fc, r := ready(t)
	fc.create(elsewhere)
	fc.create(other)
	fc.loseLabel("v1.metrics.k8s.io")
	if err := r.RetireAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	left := fc.apiServices()
	if len(left) != 1 || left[0].Name != other.Name {
		t.Errorf("left %v", left)
	}
}

func (fc *fakeCluster) loseLabel(name string) {
	fc.t.Helper()
	gv, _ := manifests.VersionOf(name)
	fc.editAPIService(gv, func(s *apiregistrationv1.APIService) { s.Labels = nil })
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
