// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

const olderName = "older"

// olderBackend is a backend that is older than "cluster".
func olderBackend(change ...func(*v1alpha1.MetricsBackendSpec)) *v1alpha1.MetricsBackend {
	backend := newBackend(change...)
	backend.Name, backend.UID = olderName, "uid-"+olderName
	backend.CreationTimestamp = metav1.NewTime(backend.CreationTimestamp.Add(-time.Hour))
	return backend
}

// reconcileBothUntil reconciles both backends until done.
func (fc *fakeCluster) reconcileBothUntil(r *Reconciler, done func() bool) {
	fc.t.Helper()
	for range maxRounds {
		if done() {
			return
		}
		fc.reconcileBoth(r)
		fc.step()
	}
	fc.t.Fatalf("not settled:\n%s", fc.show())
}

// reconcileBoth reconciles the older backend, then "cluster".
func (fc *fakeCluster) reconcileBoth(r *Reconciler) {
	fc.t.Helper()
	for _, name := range []string{olderName, backendName} {
		if _, err := r.Reconcile(fc.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}}); err != nil && !apierrors.IsConflict(err) {
			fc.t.Fatal(err)
		}
	}
}

// withTwoBackends returns a cluster in which the older backend has the versions, and
// "cluster" waits.
func withTwoBackends(t *testing.T) (*fakeCluster, *Reconciler) {
	fc := prepared(t, "two backends", func(fc *fakeCluster) {
		fc.create(olderBackend())
		fc.reconcileBothUntil(fc.live(), func() bool { return fc.holds(olderName) && fc.isWaitingForOlder() })
	})
	return fc, fc.live()
}

// holds reports whether the backend has both versions.
func (fc *fakeCluster) holds(name string) bool {
	service := systemNamespace + "/metrics-serving-" + name
	return fc.pointsToNow(v1) == service && fc.pointsToNow(v1beta1) == service
}

const olderService = systemNamespace + "/metrics-serving-" + olderName

// isWaitingForOlder reports whether the younger backend waits for nothing but the
// versions.
func (fc *fakeCluster) isWaitingForOlder() bool {
	return fc.isStalledBy(v1alpha1.ReasonConflict) &&
		fc.condition(v1alpha1.ConditionServingReady).Status == metav1.ConditionTrue
}

// An older backend keeps the versions that both name from the younger one, however long it is not available. The younger
// one says so, and how to go on, each way of which works.
func TestBrokenOlderBackendBlocks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		older func(*v1alpha1.MetricsBackendSpec)
		goOn  func(*fakeCluster)
		done  func(*fakeCluster) bool
	}{
		"its image serves nothing, and it is repaired": {
			older: func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = imageNothing },
			goOn: func(fc *fakeCluster) {
				fc.changeOlder(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = "" })
			},
			done: func(fc *fakeCluster) bool {
				return fc.holds(olderName) && strings.HasSuffix(fc.condition(v1alpha1.ConditionStalled).Message, "take the version out of one of the two specs, or delete one of them")
			},
		},
		"its namespace does not exist, and it is deleted": {
			older: func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Namespace = "other-ns" },
			goOn:  func(fc *fakeCluster) { fc.delete(olderBackend()) },
			done:  func(fc *fakeCluster) bool { return fc.holds(backendName) && fc.isReady() },
		},
		"its requests fail, and a version is taken out of its spec": {
			older: func(*v1alpha1.MetricsBackendSpec) {},
			goOn:  func(fc *fakeCluster) { fc.changeOlder(onlyV1beta1) },
			done:  func(fc *fakeCluster) bool { return fc.pointsToNow(v1) == ourService },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := newFakeCluster(t, newBackend(), olderBackend(tc.older))
			fc.failingService = olderService
			r := fc.live()
			said := func() bool {
				return fc.isWaitingForOlder() && strings.Contains(fc.condition(v1alpha1.ConditionStalled).Message,
					`MetricsBackend "older" is older and claims v1.metrics.k8s.io, but is not available: repair or delete it, or take the version out of its spec`)
			}
			fc.reconcileBothUntil(r, said)
			for range 20 {
				fc.clock.Step(time.Hour)
				fc.reconcileBoth(r)
				fc.step()
			}
			if fc.pointsToNow(v1) == ourService || !said() {
				t.Fatalf("v1 points to %q:\n%s", fc.pointsToNow(v1), fc.show())
			}
			fc.failingService = ""
			tc.goOn(fc)
			fc.reconcileBothUntil(r, func() bool { return tc.done(fc) })
		})
	}
}

func (fc *fakeCluster) changeOlder(change func(*v1alpha1.MetricsBackendSpec)) {
	fc.t.Helper()
	older := &v1alpha1.MetricsBackend{}
	fc.get(client.ObjectKey{Name: olderName}, older)
	change(&older.Spec)
	older.Generation++
	fc.update(older)
}

// A backend does not wait for a successor that is not ready, and not long for one that
// does not take over.
func TestSuccessorIsNotReady(t *testing.T) {
	t.Parallel()
	fc, r := withTwoBackends(t)
	fc.unresponsive = true // the successor's pods do not answer any more
	for range 3 {
		mustReconcile(t, r)
	}
	fc.delete(olderBackend())
	fc.reconcileBothUntil(r, func() bool { return fc.pointsToNow(v1) == "" && fc.pointsToNow(v1beta1) == "" })
	fc.unresponsive = false
	fc.reconcileBothUntil(r, fc.isReady)
}

// Without its namespace, and so without pods, a backend cannot wait for a successor.
func TestSuccessorIsNotAwaitedWithoutNamespace(t *testing.T) {
	t.Parallel()
	fc, r := withTwoBackends(t)
	fc.delete(olderBackend())
	live := &v1alpha1.MetricsBackend{}
	fc.get(client.ObjectKey{Name: olderName}, live)
	for _, without := range []bool{false, true} {
		s := r.newState(live)
		s.namespace.gone = without
		successor, err := r.successor(t.Context(), s, &lifecycle.Version{GV: v1, Live: fc.apiService(v1)})
		fc.must(err)
		if waits := successor != ""; waits == without {
			t.Errorf("without namespace %t: waits for %q", without, successor)
		}
	}
}
