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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// APIServices go first, also one that lost its label, and everything else only once they
// have left discovery.
func TestDeleteInOrder(t *testing.T) {
	t.Parallel()
	var deleted []string
	w, r := ready(t, intercepted(func(c call, make func() error) error {
		if name, ok := strings.CutPrefix(c.name, "delete "); ok {
			deleted = append(deleted, name)
		}
		return make()
	}))
	w.loseLabel("v1.metrics.k8s.io")
	w.delete(w.backend())
	mustReconcile(t, r)
	if len(deleted) != 2 || !strings.Contains(deleted[0], "APIService v1.metrics") || !strings.Contains(deleted[1], "APIService v1beta1.metrics") {
		t.Fatalf("first deleted %v, want the APIServices and nothing else", deleted)
	}
	w.wantCondition(v1alpha1.ConditionReady, "", v1alpha1.ReasonDeleting, "still in discovery")
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

// An APIService that lost its label, and leads to somebody else by now, is not ours to delete.
func TestDeleteLeavesOthersTheirs(t *testing.T) {
	t.Parallel()
	w, r := ready(t)
	w.editAPIService(v1beta1, func(s *apiregistrationv1.APIService) {
		s.Labels = nil
		s.Spec.Service.Name = "theirs"
	})
	w.delete(w.backend())
	w.settle(r, w.isGone)
	w.wantLeadsTo(v1, "")
	w.wantLeadsTo(v1beta1, systemNamespace+"/theirs")
}

// A namespace that is gone, or on its way, is no reason to keep the object.
func TestDeleteWithoutNamespace(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*world){
		"gone":        func(w *world) { w.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}}) },
		"terminating": (*world).endNamespace,
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
			end(w)
			forbidden = true
			w.delete(w.backend())
			w.settle(r, w.isGone)
			if len(w.apiServices()) > 0 || strings.Contains(w.inventory(), "ClusterRole") {
				t.Errorf("left:\n%s", w.inventory())
			}
		})
	}
}

// What a finalizer of someone else holds is named, and the object waits for it.
func TestDeleteHeld(t *testing.T) {
	t.Parallel()
	w, r := ready(t)
	held := &corev1.Secret{}
	held.Namespace, held.Name = systemNamespace, "held"
	held.Labels = map[string]string{v1alpha1.LabelBackend: backendName}
	held.Finalizers = []string{"example.com/held"}
	w.create(held)
	w.delete(w.backend())
	w.rounds(r, 8)
	if c := w.condition(v1alpha1.ConditionReady); c.Message != "removing Secret operator-ns/held" {
		t.Errorf("Ready is %+v", c)
	}
	w.get(client.ObjectKeyFromObject(held), held)
	held.Finalizers = nil
	w.update(held)
	w.settle(r, w.isGone)
}

// Without our finalizer there is nothing to wait for.
func TestDeleteWithoutFinalizer(t *testing.T) {
	t.Parallel()
	backend := newBackend()
	backend.Finalizers = []string{"example.com/other"}
	w := newWorld(t, backend)
	w.delete(w.backend())
	before := w.backend().ResourceVersion
	mustReconcile(t, w.reconciler())
	if after := w.backend().ResourceVersion; after != before {
		t.Error("it was written")
	}
}
