// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// APIServices go first, and everything else only once they have left discovery.
func TestDeleteInOrder(t *testing.T) {
	var deleted []string
	w, r := ready(t, intercepted(func(c call, make func() error) error {
		if name, ok := strings.CutPrefix(c.name, "delete "); ok {
			deleted = append(deleted, name)
		}
		return make()
	}))
	w.must(w.raw.Delete(context.Background(), w.backend()))
	mustReconcile(t, r)
	if len(deleted) != 2 || !strings.Contains(deleted[0], "APIService v1.metrics") || !strings.Contains(deleted[1], "APIService v1beta1.metrics") {
		t.Fatalf("first deleted %v, want the APIServices and nothing else", deleted)
	}
	c := w.condition(v1alpha1.ConditionReady)
	if c.Reason != v1alpha1.ReasonDeleting || !strings.Contains(c.Message, "still in discovery") {
		t.Errorf("Ready is %+v", c)
	}
	mustReconcile(t, r)
	if len(deleted) != 2 {
		t.Fatalf("deleted %v while versions are in discovery", deleted[2:])
	}
	w.settle(r, w.isGone)
	service := slices.IndexFunc(deleted, func(name string) bool { return name == "*v1.PartialObjectMetadata metrics-serving-cluster" })
	if service < 2 {
		t.Errorf("deleted %v", deleted)
	}
	if left := w.inventory(); strings.Contains(left, "/metrics-serving") {
		t.Errorf("left:\n%s", left)
	}
}

// A namespace that is gone, or on its way, is no reason to keep the object.
func TestDeleteWithoutNamespace(t *testing.T) {
	cases := map[string]func(*world, *corev1.Namespace){
		"gone": func(w *world, n *corev1.Namespace) { w.must(w.raw.Delete(context.Background(), n)) },
		"terminating": func(w *world, n *corev1.Namespace) {
			n.Finalizers = []string{"kubernetes"}
			w.must(w.raw.Update(context.Background(), n))
			w.must(w.raw.Delete(context.Background(), n))
		},
	}
	for name, end := range cases {
		t.Run(name, func(t *testing.T) {
			forbidden := false
			w, r := ready(t, interceptor.Funcs{
				// Its Roles are gone with the namespace.
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					options := (&client.ListOptions{}).ApplyOptions(opts)
					if forbidden && options.Namespace == systemNamespace {
						return apierrors.NewForbidden(corev1.Resource("anything"), "", errors.New("no"))
					}
					return c.List(ctx, list, opts...)
				},
			})
			namespace := &corev1.Namespace{}
			w.must(w.raw.Get(context.Background(), client.ObjectKey{Name: systemNamespace}, namespace))
			end(w, namespace)
			forbidden = true
			w.must(w.raw.Delete(context.Background(), w.backend()))
			w.settle(r, w.isGone)
			if len(w.apiServices()) > 0 || strings.Contains(w.inventory(), "ClusterRole") {
				t.Errorf("left:\n%s", w.inventory())
			}
		})
	}
}

// An APIService that lost its label, but leads to the Service that is about to
// go, would break every discovery: it goes too. One that leads elsewhere stays.
func TestDeleteAPIServiceWithoutLabel(t *testing.T) {
	w, r := ready(t, interceptor.Funcs{})
	change := func(name string, change func(*apiregistrationv1.APIService)) {
		service := &apiregistrationv1.APIService{}
		w.must(w.raw.Get(context.Background(), client.ObjectKey{Name: name}, service))
		change(service)
		w.must(w.raw.Update(context.Background(), service))
	}
	change("v1.metrics.k8s.io", func(s *apiregistrationv1.APIService) { s.Labels = nil })
	change("v1beta1.metrics.k8s.io", func(s *apiregistrationv1.APIService) {
		s.Labels = nil
		s.Spec.Service.Name = "theirs"
	})
	w.must(w.raw.Delete(context.Background(), w.backend()))
	w.settle(r, w.isGone)
	var left apiregistrationv1.APIServiceList
	w.must(w.raw.List(context.Background(), &left))
	if len(left.Items) != 1 || left.Items[0].Name != "v1beta1.metrics.k8s.io" {
		t.Errorf("left %d: %+v", len(left.Items), left.Items)
	}
}

// What a finalizer of someone else holds is named, and the object waits for it.
func TestDeleteHeld(t *testing.T) {
	w, r := ready(t, interceptor.Funcs{})
	held := &corev1.Secret{}
	held.Namespace, held.Name = systemNamespace, "held"
	held.Labels = map[string]string{v1alpha1.LabelBackend: backendName}
	held.Finalizers = []string{"example.com/held"}
	w.must(w.raw.Create(context.Background(), held))
	w.must(w.raw.Delete(context.Background(), w.backend()))
	for range 8 {
		mustReconcile(t, r)
		w.step()
	}
	if c := w.condition(v1alpha1.ConditionReady); c.Message != "removing Secret operator-ns/held" {
		t.Errorf("Ready is %+v", c)
	}
	w.must(w.raw.Get(context.Background(), client.ObjectKeyFromObject(held), held))
	held.Finalizers = nil
	w.must(w.raw.Update(context.Background(), held))
	w.settle(r, w.isGone)
}

// Without our finalizer there is nothing to wait for.
func TestDeleteWithoutFinalizer(t *testing.T) {
	backend := newBackend()
	backend.Finalizers = []string{"example.com/other"}
	w := newWorld(t, backend)
	w.must(w.raw.Delete(context.Background(), w.backend()))
	before := w.backend().ResourceVersion
	mustReconcile(t, w.reconciler(interceptor.Funcs{}))
	if after := w.backend().ResourceVersion; after != before {
		t.Error("it was written")
	}
}
