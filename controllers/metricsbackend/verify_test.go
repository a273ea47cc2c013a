// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/aggregator"
)

// With two kube-apiservers a version is available once both list it.
func TestAvailableOnEveryKubeAPIServer(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend())
	fc.secondDiscovery = map[schema.GroupVersion]bool{}
	r := fc.reconciler()
	fc.advance(r, aggregator.DiscoveryDelay/2)
	const lags = "v1.metrics.k8s.io is registered; the discovery of kube-apiserver 192.0.2.2:6443 does not list it yet"
	fc.wantCondition(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonProgressing, lags)
	fc.advance(r, 2*aggregator.DiscoveryDelay)
	const stuck = "v1.metrics.k8s.io is registered, but the discovery of kube-apiserver 192.0.2.2:6443 does not list it: look at the log"
	fc.wantCondition(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonNotInDiscovery, stuck)
	fc.wantCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNotInDiscovery)
	fc.secondDiscovery = map[schema.GroupVersion]bool{v1: true, v1beta1: true}
	fc.reconcileUntil(r, fc.isReady)
}

// A kube-apiserver that restarts lists nothing for a moment, or cannot be reached: an
// available backend stays available.
func TestAvailableWhileAKubeAPIServerRestarts(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend())
	fc.secondDiscovery = map[schema.GroupVersion]bool{v1: true, v1beta1: true}
	r := fc.reconciler()
	fc.reconcileUntil(r, fc.isReady)
	fc.advance(r, aggregator.DiscoveryDelay)
	before := fc.backend().ResourceVersion

	fc.secondDiscovery = map[schema.GroupVersion]bool{}
	fc.advance(r, aggregator.DiscoveryDelay-progressMax)
	fc.secondDiscovery = nil
	fc.unreachable = true
	fc.advance(r, aggregator.DiscoveryDelay)
	fc.unreachable = false
	fc.secondDiscovery = map[schema.GroupVersion]bool{v1: true, v1beta1: true}
	fc.advance(r, aggregator.DiscoveryDelay)
	if after := fc.backend().ResourceVersion; after != before {
		t.Errorf("the status was written:\n%s", fc.show())
	}
}

// A version leaves the discovery of both kube-apiservers before anything else continues.
func TestRetiredOnEveryKubeAPIServer(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend())
	fc.secondDiscovery = map[schema.GroupVersion]bool{v1: true, v1beta1: true}
	r := fc.reconciler()
	fc.reconcileUntil(r, fc.isReady)
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
		onlyV1beta1(spec)
		spec.Serving.Image = imageV1beta1
	})
	fc.advance(r, 10*aggregator.DiscoveryDelay)
	const want = "no longer registered, but v1 is still in discovery of kube-apiserver 192.0.2.2:6443"
	fc.wantCondition(v1alpha1.ConditionStaleAPIServicesRemoved, "", "", want)
	for _, p := range fc.pods() {
		if imageOf(&p.Spec) != imageBoth {
			t.Errorf("pod %s was rolled while one kube-apiserver lists v1", p.Name)
		}
	}
	fc.secondDiscovery[v1] = false
	fc.reconcileUntil(r, fc.isReady)
}

// An APIService that the aggregator has not checked yet is no failure: adding a version
// to a working backend causes no warning, and no Ready=False.
func TestNewVersionIsNoFailure(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend(onlyV1beta1))
	fc.reconcileUntil(fc.reconciler(), fc.isReady)
	recorder := events.NewFakeRecorder(100)
	r := fc.reconciler()
	r.Events = recorder
	fc.change(bothVersions)
	for range maxRounds {
		mustReconcile(t, r)
		if c := fc.condition(v1alpha1.ConditionReady); c.Status == metav1.ConditionFalse {
			t.Errorf("Ready is %+v", c)
		}
		if fc.isRegistered(v1) {
			// kube-apiserver's controller takes its time.
			mustReconcile(t, r)
			fc.wantCondition(v1alpha1.ConditionAvailable, "", v1alpha1.ReasonProgressing, "v1.metrics.k8s.io is registered; kube-apiserver has not checked it yet")
			break
		}
		fc.step()
	}
	fc.reconcileUntil(r, fc.isReady)
	close(recorder.Events)
	for e := range recorder.Events {
		if strings.HasPrefix(e, "Warning") {
			t.Error(e)
		}
	}
}

// One request that times out changes no condition. A lasting failure is reported, and
// changes nothing else that is known: metrics-server does not have to serve v1.
func TestUnresponsiveEndpoint(t *testing.T) {
	t.Parallel()
	fc := prepared(t, "existing", existingCluster)
	r := fc.live()
	fc.scaleMetricsServer(1, v1beta1)
	mustReconcile(t, r)
	before := fc.backend().Status
	fc.other.failing["192.168.0.1:10250"] = errors.New("no answer within 5s")
	result, err := reconcileOnce(t, r)
	if err != nil || result.RequeueAfter > transientRecheck {
		t.Errorf("looks again after %s, error %v", result.RequeueAfter, err)
	}
	if diff := cmp.Diff(before, fc.backend().Status); diff != "" {
		t.Errorf("status (-before +after):\n%s", diff)
	}
	fc.clock.Step(servingGrace)
	mustReconcile(t, r)
	fc.wantCondition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonProbeFailed)
	for _, kind := range []string{v1alpha1.ConditionCertificatesValid, v1alpha1.ConditionAPIServicesRegistered, v1alpha1.ConditionAvailable} {
		fc.wantCondition(kind, metav1.ConditionTrue, "")
	}
	fc.wantRegistered("v1beta1")
	clear(fc.other.failing)
	fc.reconcileUntil(r, fc.isReady)
	if diff := cmp.Diff(before.APIServices, fc.backend().Status.APIServices); diff != "" {
		t.Errorf("versions (-before +after):\n%s", diff)
	}
}
