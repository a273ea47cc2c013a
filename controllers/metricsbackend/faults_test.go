// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/children"
)

// fault is something that goes wrong outside of the operator.
type fault struct {
	happens func(*world)
	// condition says it, with the reason and a part of the message, after lasts.
	condition, reason, message string
	lasts                      time.Duration
	// ends makes it go away; nil for what the operator mends by itself.
	ends func(*world)
}

func faultsOutside() map[string]fault {
	available := func(w *world, status apiregistrationv1.ConditionStatus, reason string) {
		for _, service := range w.apiServices() {
			service.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: status, Reason: reason}}
			w.must(w.raw.Status().Update(context.Background(), &service))
		}
	}
	passes := func(w *world) { available(w, apiregistrationv1.ConditionTrue, "Passed") }
	editAPIService := func(change func(*apiregistrationv1.APIService)) func(*world) {
		return func(w *world) {
			var service apiregistrationv1.APIService
			w.must(w.raw.Get(context.Background(), client.ObjectKey{Name: apiServiceName(v1)}, &service))
			change(&service)
			w.must(w.raw.Update(context.Background(), &service))
		}
	}
	return map[string]fault{
		"the Service has no endpoints": {
			happens:   func(w *world) { available(w, apiregistrationv1.ConditionFalse, "MissingEndpoints") },
			condition: v1alpha1.ConditionAvailable, reason: v1alpha1.ReasonAggregatorUnavailable, message: "(MissingEndpoints)",
			ends: passes,
		},
		"kube-apiserver cannot reach the pods": {
			happens:   func(w *world) { available(w, apiregistrationv1.ConditionFalse, "FailedDiscoveryCheck") },
			condition: v1alpha1.ConditionAvailable, reason: v1alpha1.ReasonAggregatorUnavailable, message: "can kube-apiserver reach the pods at port 10443?",
			ends: passes,
		},
		"the operator cannot reach the pods": {
			happens:   func(w *world) { w.mute = true },
			condition: v1alpha1.ConditionServingReady, reason: v1alpha1.ReasonProbeFailed, message: "a NetworkPolicy must let the operator's pod connect",
			lasts: failingPatience, ends: func(w *world) { w.mute = false },
		},
		"requests through kube-apiserver fail": {
			happens:   func(w *world) { w.refused = true },
			condition: v1alpha1.ConditionAvailable, reason: v1alpha1.ReasonRequestFailed, message: "does not answer through kube-apiserver",
			lasts: requestPatience, ends: func(w *world) { w.refused = false },
		},
		"no kubelet was scraped for long": {
			happens:   func(w *world) { w.stale = true },
			condition: v1alpha1.ConditionAvailable, reason: v1alpha1.ReasonNoFreshSample, message: "see SourcesHealthy",
			ends: func(w *world) { w.stale = false },
		},
		"one kube-apiserver of two does not follow": {
			happens: func(w *world) {
				w.second = map[schema.GroupVersion]bool{}
			},
			condition: v1alpha1.ConditionAvailable, reason: v1alpha1.ReasonNotInDiscovery, message: "192.0.2.2:6443 does not list it",
			lasts: soak, ends: func(w *world) { w.second = nil },
		},
		"a caBundle is blanked": {
			happens: editAPIService(func(s *apiregistrationv1.APIService) { s.Spec.CABundle = nil }),
		},
		"an APIService leads elsewhere": {
			happens: editAPIService(func(s *apiregistrationv1.APIService) { s.Spec.Service.Name = "nowhere" }),
		},
		"priorities are turned round": {
			happens: editAPIService(func(s *apiregistrationv1.APIService) { s.Spec.VersionPriority, s.Spec.GroupPriorityMinimum = 1, 1 }),
		},
	}
}

// Each fault is told in a condition, never breaks the invariant, takes no version
// out of discovery that others can still ask for, and once it is over, or at once
// where the operator can mend it, everything is as before.
func TestFaultsOutside(t *testing.T) {
	for name, f := range faultsOutside() {
		t.Run(name, func(t *testing.T) {
			w, r := ready(t, interceptor.Funcs{})
			want := w.end()
			f.happens(w)
			w.pass(r, f.lasts+10*time.Second)
			if f.ends != nil {
				c := w.condition(f.condition)
				if c.Status != metav1.ConditionFalse || c.Reason != f.reason || !strings.Contains(c.Message, f.message) {
					t.Errorf("%s is %+v, want %s with %q", f.condition, c, f.reason, f.message)
				}
				if got := w.registeredVersions(); len(got) != 2 {
					t.Errorf("registered %v", got)
				}
				f.ends(w)
			}
			w.settle(r, w.isReady)
			if diff := gocmp.Diff(want, w.end()); diff != "" {
				t.Errorf("(-before +after):\n%s", diff)
			}
			for _, service := range w.apiServices() {
				if len(service.Spec.CABundle) == 0 || service.Spec.Service.Name != "metrics-serving-cluster" {
					t.Errorf("%s is %+v", service.Name, service.Spec)
				}
			}
		})
	}
}

// What the operator owns is deleted by hand: one by one, pairs, and all at once, in
// orders that differ. Everything is made anew and nothing is left over.
func TestChildrenDeletedInAnyOrder(t *testing.T) {
	const orders = 12
	w, _ := ready(t, interceptor.Funcs{})
	count := len(w.ownedObjects())
	if count < 12 {
		t.Fatalf("only %d objects are owned", count)
	}
	deleteAll := func(t *testing.T, pick []int) {
		t.Helper()
		w, r := ready(t, interceptor.Funcs{})
		owned := w.ownedObjects()
		want := w.end()
		var names []string
		for _, i := range pick {
			object := owned[i]
			names = append(names, object.Kind+" "+object.Name)
			if err := w.raw.Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			mustReconcile(t, r)
			w.watchInvariant("after " + strings.Join(names, ", ") + " was deleted")
			w.step()
		}
		w.settle(r, func() bool { return w.isReady() && w.end() == want })
		if t.Failed() {
			t.Fatalf("deleted %s", strings.Join(names, ", "))
		}
	}
	for i := range count {
		t.Run(w.ownedObjects()[i].Kind+" "+w.ownedObjects()[i].Name, func(t *testing.T) { deleteAll(t, []int{i}) })
	}
	t.Run("in any order", func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // an order, not a secret
		for range orders {
			deleteAll(t, random.Perm(count)[:1+random.IntN(count)])
		}
	})
}

// ownedObjects are the metadata of all that carries the backend's label, but for
// pods and what their controllers own.
func (w *world) ownedObjects() []*metav1.PartialObjectMetadata {
	var owned []*metav1.PartialObjectMetadata
	kinds := append(children.Removable(), children.Kind{GroupVersionKind: apiServiceKind})
	for _, kind := range kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		w.must(w.raw.List(context.Background(), list, client.MatchingLabels{v1alpha1.LabelBackend: backendName}))
		for i := range list.Items {
			object := &list.Items[i]
			object.SetGroupVersionKind(kind.GroupVersionKind)
			owned = append(owned, object)
		}
	}
	return owned
}

// The namespace of the pods ends while they still run: the versions leave discovery
// at once, the status says why, and the deletion of the backend does not hang.
func TestServingNamespaceEnds(t *testing.T) {
	w, r := ready(t, interceptor.Funcs{})
	var namespace corev1.Namespace
	w.must(w.raw.Get(context.Background(), client.ObjectKey{Name: systemNamespace}, &namespace))
	namespace.Finalizers = []string{"kubernetes"}
	w.must(w.raw.Update(context.Background(), &namespace))
	w.must(w.raw.Delete(context.Background(), &namespace))
	w.pass(r, 20*time.Second)
	if got := w.registeredVersions(); len(got) > 0 {
		t.Errorf("registered %v while the namespace ends", got)
	}
	if c := w.condition(v1alpha1.ConditionStalled); c.Reason != v1alpha1.ReasonNamespaceTerminating {
		t.Errorf("Stalled is %+v", c)
	}
	w.must(w.raw.Delete(context.Background(), w.backend()))
	w.settle(r, w.isGone)
}
