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

const elderName = "elder"

// elder is a backend that is older than "cluster".
func elder(change ...func(*v1alpha1.MetricsBackendSpec)) *v1alpha1.MetricsBackend {
	backend := newBackend(change...)
	backend.Name, backend.UID = elderName, "uid-"+elderName
	backend.CreationTimestamp = metav1.NewTime(backend.CreationTimestamp.Add(-time.Hour))
	return backend
}

// settleBoth reconciles both backends until done.
func (w *world) settleBoth(r *Reconciler, done func() bool) {
	w.t.Helper()
	for range maxRounds {
		if done() {
			return
		}
		w.reconcileBoth(r)
		w.step()
	}
	w.t.Fatalf("not settled:\n%s", w.show())
}

// reconcileBoth reconciles the elder, then "cluster".
func (w *world) reconcileBoth(r *Reconciler) {
	w.t.Helper()
	for _, name := range []string{elderName, backendName} {
		if _, err := r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}}); err != nil && !apierrors.IsConflict(err) {
			w.t.Fatal(err)
		}
	}
}

// both is a world in which the elder has the versions, and "cluster" waits.
func both(t *testing.T) (*world, *Reconciler) {
	w := newWorld(t, newBackend(), elder())
	r := w.live()
	w.settleBoth(r, func() bool {
		return w.leadsNow(v1) == elderService && w.leadsNow(v1beta1) == elderService && w.isWaiting()
	})
	return w, r
}

const elderService = systemNamespace + "/metrics-serving-" + elderName

// isWaiting tells whether the younger has everything but the versions.
func (w *world) isWaiting() bool {
	return w.isStalledBy(v1alpha1.ReasonConflict) &&
		w.condition(v1alpha1.ConditionServingReady).Status == metav1.ConditionTrue
}

// The younger takes over in place: the versions never leave discovery.
func TestHeirTakesOver(t *testing.T) {
	t.Parallel()
	w, r := both(t)
	r.Client = interceptor.NewClient(w.raw, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if _, ok := o.(*apiregistrationv1.APIService); ok {
				t.Errorf("APIService %s was deleted", o.GetName())
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	w.delete(elder())
	w.settleBoth(r, w.isReady)
	if live := w.apiService(v1); live.Labels[v1alpha1.LabelBackend] != backendName || w.leadsNow(v1) != ourService {
		t.Errorf("v1 is %+v", live)
	}
	w.settleBoth(r, func() bool {
		return apierrors.IsNotFound(w.raw.Get(context.Background(), client.ObjectKey{Name: elderName}, &v1alpha1.MetricsBackend{}))
	})
	if got := w.inventory(); strings.Contains(got, elderName) {
		t.Errorf("left of the elder:\n%s", got)
	}
}

// An heir that is not ready is not waited for; one that gets no further, not long.
func TestHeirIsNotReady(t *testing.T) {
	t.Parallel()
	w, r := both(t)
	w.mute = true // the heir's pods cannot be asked any more
	for range 3 {
		mustReconcile(t, r)
	}
	w.delete(elder())
	w.settleBoth(r, func() bool { return w.leadsNow(v1) == "" && w.leadsNow(v1beta1) == "" })
	w.mute = false
	w.settleBoth(r, w.isReady)
}

// Without its namespace, and so its pods, the elder has nothing to wait with.
func TestHeirIsNotAwaitedWithoutNamespace(t *testing.T) {
	t.Parallel()
	w, r := both(t)
	w.delete(elder())
	live := &v1alpha1.MetricsBackend{}
	w.get(client.ObjectKey{Name: elderName}, live)
	for _, without := range []bool{false, true} {
		s := r.newScope(live)
		s.withoutNamespace = without
		held, err := r.awaitHeir(t.Context(), s, v1)
		w.must(err)
		if waits := held != ""; waits == without {
			t.Errorf("without namespace %t: waits for %q", without, held)
		}
	}
}

// The younger gets what the elder's spec no longer names, and nothing else.
func TestElderLetsGoOfAVersion(t *testing.T) {
	t.Parallel()
	w, r := both(t)
	live := &v1alpha1.MetricsBackend{}
	w.get(client.ObjectKey{Name: elderName}, live)
	onlyV1beta1(&live.Spec)
	live.Generation++
	w.update(live)
	w.settleBoth(r, func() bool { return w.leadsNow(v1) == ourService })
	w.wantLeadsTo(v1beta1, elderService)
	if !w.isWaiting() {
		t.Errorf("it does not wait:\n%s", w.show())
	}
}
