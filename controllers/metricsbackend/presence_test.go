// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// With two kube-apiservers a version is available once both list it.
func TestAvailableOnEveryKubeAPIServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newBackend())
	w.second = map[schema.GroupVersion]bool{}
	r := w.reconciler()
	w.pass(r, discoverySoak/2)
	const lags = "v1.metrics.k8s.io is registered; the discovery of kube-apiserver 192.0.2.2:6443 does not list it yet"
	w.wantCondition(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonProgressing, lags)
	w.pass(r, 2*discoverySoak)
	const stuck = "v1.metrics.k8s.io is registered, but the discovery of kube-apiserver 192.0.2.2:6443 does not list it: look at the log"
	w.wantCondition(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonNotInDiscovery, stuck)
	w.wantCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNotInDiscovery)
	w.second = map[schema.GroupVersion]bool{v1: true, v1beta1: true}
	w.settle(r, w.isReady)
}

// A kube-apiserver that restarts lists nothing for a moment, or cannot be asked:
// a backend that was available stays so.
func TestAvailableWhileAKubeAPIServerRestarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newBackend())
	w.second = map[schema.GroupVersion]bool{v1: true, v1beta1: true}
	r := w.reconciler()
	w.settle(r, w.isReady)
	w.pass(r, discoverySoak)
	before := w.backend().ResourceVersion

	w.second = map[schema.GroupVersion]bool{}
	w.pass(r, discoverySoak-progressMax)
	w.second = nil
	w.unreachable = true
	w.pass(r, discoverySoak)
	w.unreachable = false
	w.second = map[schema.GroupVersion]bool{v1: true, v1beta1: true}
	w.pass(r, discoverySoak)
	if after := w.backend().ResourceVersion; after != before {
		t.Errorf("the status was written:\n%s", w.show())
	}
}

// A version leaves discovery of both before anything else goes on.
func TestRetiredOnEveryKubeAPIServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newBackend())
	w.second = map[schema.GroupVersion]bool{v1: true, v1beta1: true}
	r := w.reconciler()
	w.settle(r, w.isReady)
	w.change(func(spec *v1alpha1.MetricsBackendSpec) {
		onlyV1beta1(spec)
		spec.Serving.Image = imageV1beta1
	})
	w.pass(r, 10*discoverySoak)
	const want = "no longer registered, but v1 is still in discovery of kube-apiserver 192.0.2.2:6443"
	w.wantCondition(v1alpha1.ConditionStaleAPIServicesRemoved, "", "", want)
	for _, p := range w.pods() {
		if imageOf(&p) != imageBoth {
			t.Errorf("pod %s was rolled while one kube-apiserver lists v1", p.Name)
		}
	}
	w.second[v1] = false
	w.settle(r, w.isReady)
}
