// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
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

const olderService = systemNamespace + "/metrics-serving-" + olderName

// isWaitingForOlder reports whether the younger backend waits for nothing but the
// versions.
func (fc *fakeCluster) isWaitingForOlder() bool {
	return fc.isStalledBy(v1alpha1.ReasonConflict) &&
		fc.condition(v1alpha1.ConditionServingReady).Status == metav1.ConditionTrue
}

// The successor takes over in place: the versions never leave discovery.
func TestSuccessorTakesOver(t *testing.T) {
	t.Parallel()
	fc, r := withTwoBackends(t)
	r.Client = interceptor.NewClient(fc.raw, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if _, ok := o.(*apiregistrationv1.APIService); ok {
				t.Errorf("APIService %s was deleted", o.GetName())
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	fc.delete(olderBackend())
	fc.reconcileBothUntil(r, fc.isReady)
	if live := fc.apiService(v1); live.Labels[v1alpha1.LabelBackend] != backendName || fc.pointsToNow(v1) != ourService {
		t.Errorf("v1 is %+v", live)
	}
	fc.reconcileBothUntil(r, func() bool {
		return apierrors.IsNotFound(fc.raw.Get(context.Background(), client.ObjectKey{Name: olderName}, &v1alpha1.MetricsBackend{}))
	})
	if got := fc.inventory(); strings.Contains(got, olderName) {
		t.Errorf("left of the older backend:\n%s", got)
	}
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
		why, err := r.awaitSuccessor(t.Context(), s, v1)
		fc.must(err)
		if waits := why != ""; waits == without {
			t.Errorf("without namespace %t: waits for %q", without, why)
		}
	}
}

// The younger backend takes over what the older spec no longer names, and nothing else.
func TestOlderBackendReleasesAVersion(t *testing.T) {
	t.Parallel()
	fc, r := withTwoBackends(t)
	live := &v1alpha1.MetricsBackend{}
	fc.get(client.ObjectKey{Name: olderName}, live)
	onlyV1beta1(&live.Spec)
	live.Generation++
	fc.update(live)
	fc.reconcileBothUntil(r, func() bool { return fc.pointsToNow(v1) == ourService })
	fc.wantPointsTo(v1beta1, olderService)
	if !fc.isWaitingForOlder() {
		t.Errorf("it does not wait:\n%s", fc.show())
	}
}
