// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

const answered500 = "ask /apis/metrics.k8s.io/v1/nodes: answered 500 Internal Server Error"

// fails makes requests of the versions fail in the named pods, or in all.
func (fc *fakeCluster) fails(versions []schema.GroupVersion, pods ...string) {
	fc.failingRequests = func(p *corev1.Pod, gv schema.GroupVersion) string {
		for _, name := range append(pods, p.Name)[:max(len(pods), 1)] {
			for _, version := range versions {
				if name == p.Name && gv == version {
					return answered500
				}
			}
		}
		return ""
	}
}

// advance lets the cluster and the operator run for a while.
func (fc *fakeCluster) advance(r *Reconciler, d time.Duration) {
	fc.t.Helper()
	for end := fc.clock.Now().Add(d); fc.clock.Now().Before(end); {
		mustReconcile(fc.t, r)
		fc.checkInvariant("after a reconciliation")
		fc.step()
	}
	mustReconcile(fc.t, r)
	if fc.violation != "" {
		fc.t.Errorf("invariant broken: %s", fc.violation)
	}
}

// Pods list versions whose requests fail; by pods, duration and versions.
func TestFailingRequests(t *testing.T) {
	t.Parallel()
	both := []schema.GroupVersion{v1, v1beta1}
	cases := map[string]struct {
		versions []schema.GroupVersion
		pods     []string
		busy     bool
		lasts    time.Duration

		registered []string
		serving    metav1.Condition
	}{
		"a transient failure": {
			versions: []schema.GroupVersion{v1}, lasts: servingGrace - 5*time.Second,
			registered: []string{"v1", "v1beta1"},
			serving:    metav1.Condition{Reason: v1alpha1.ReasonSucceeded, Message: "2 of 2 pods are up to date and ready"},
		},
		"too short to take it out of discovery": {
			versions: []schema.GroupVersion{v1}, lasts: lifecycle.RetireGrace - 10*time.Second,
			registered: []string{"v1", "v1beta1"},
			serving: metav1.Condition{Reason: v1alpha1.ReasonRequestFailed, Message: "v1.metrics.k8s.io is served, but its requests fail in " +
				"pod pod-001 (image serving:both): " + answered500 + " (and 1 more pod); it is taken out of discovery if that goes on: see the pod's log"},
		},
		"one version in every pod": {
			versions: []schema.GroupVersion{v1}, lasts: lifecycle.RetireGrace + 30*time.Second,
			registered: []string{"v1beta1"},
			serving: metav1.Condition{Reason: v1alpha1.ReasonRequestFailed, Message: "v1.metrics.k8s.io is served, but its requests fail in " +
				"pod pod-001 (image serving:both): " + answered500 + " (and 1 more pod); it is not in discovery"},
		},
		"one version in one pod of two": {
			versions: []schema.GroupVersion{v1}, pods: []string{"pod-002"}, lasts: time.Hour,
			registered: []string{"v1", "v1beta1"},
			serving: metav1.Condition{Reason: v1alpha1.ReasonRequestFailed, Message: "v1.metrics.k8s.io is served, but its requests fail in " +
				"pod pod-002 (image serving:both): " + answered500 + "; it stays in discovery for the pods that answer: delete the pod, or use an image that works"},
		},
		"every version, for minutes": {
			versions: both, lasts: lifecycle.RetireGraceAlone - 30*time.Second,
			registered: []string{"v1", "v1beta1"},
			serving: metav1.Condition{Reason: v1alpha1.ReasonRequestFailed, Message: "v1.metrics.k8s.io is served, but its requests fail in " +
				"pod pod-001 (image serving:both): " + answered500 + " (and 1 more pod); it is taken out of discovery if that goes on: see the pod's log"},
		},
		"every version, for good": {
			versions: both, lasts: lifecycle.RetireGraceAlone + time.Minute,
			serving: metav1.Condition{Reason: v1alpha1.ReasonRequestFailed, Message: "v1.metrics.k8s.io is served, but its requests fail in " +
				"pod pod-001 (image serving:both): " + answered500 + " (and 1 more pod); it is not in discovery"},
		},
		"pods have too much to do": {
			versions: both, busy: true, lasts: time.Hour,
			registered: []string{"v1", "v1beta1"},
			serving: metav1.Condition{Reason: v1alpha1.ReasonProbeFailed, Message: "the operator cannot ask pod operator-ns/pod-001 at 10.0.0.1 what it serves: " +
				"answered 429 Too Many Requests (a NetworkPolicy must let the operator's pod connect)"},
		},
	}
	for name, tc := range sampled(t, cases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc, r := ready(t)
			before := fc.backend().ResourceVersion
			fc.fails(tc.versions, tc.pods...)
			fc.overloaded = tc.busy
			fc.advance(r, tc.lasts)
			fc.wantRegistered(tc.registered...)
			c := fc.condition(v1alpha1.ConditionServingReady)
			if diff := cmp.Diff(tc.serving, metav1.Condition{Reason: c.Reason, Message: c.Message}); diff != "" {
				t.Errorf("ServingReady (-want +got):\n%s", diff)
			}
			if same := fc.backend().ResourceVersion == before; same != (c.Reason == v1alpha1.ReasonSucceeded) {
				t.Errorf("the status was not written: %t", same)
			}

			// It works again, and the backend recovers by itself.
			fc.failingRequests = nil
			fc.advance(r, 2*recoveryTime)
			if !fc.isReady() {
				t.Errorf("it works again, but:\n%s", fc.show())
			}
			fc.wantRegistered("v1", "v1beta1")
		})
	}
}

// A version that fails intermittently does not flap in discovery.
func TestFailingIntermittently(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	registered := 0
	was := true
	for range shortened(24, 4) {
		fc.fails([]schema.GroupVersion{v1})
		fc.advance(r, 2*time.Minute)
		fc.failingRequests = nil
		for range 3 {
			fc.advance(r, 40*time.Second)
			is := fc.isRegistered(v1)
			if is && !was {
				registered++
			}
			was = is
		}
		was = fc.isRegistered(v1)
	}
	if registered > 2 {
		t.Errorf("v1 came back %d times in an hour and a half", registered)
	}
	if got := fc.registeredVersions(); len(got) == 0 {
		t.Errorf("registered %v", got)
	}
}

// A version whose requests fail in a new image is not registered.
func TestFailingAreNotRegistered(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend())
	fc.fails([]schema.GroupVersion{v1})
	r := fc.reconciler()
	fc.advance(r, 5*time.Minute)
	fc.wantRegistered("v1beta1")
	want := "its requests fail in pod pod-001 (image serving:both): " + answered500 + " (and 1 more pod)"
	fc.wantCondition(v1alpha1.ConditionAPIServicesRegistered, "", "", want)
	fc.failingRequests = nil
	fc.reconcileUntil(r, fc.isReady)
}
