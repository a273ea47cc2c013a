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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// APIServices are deleted first, including one without our label, and everything else
// only once they left discovery.
func TestDeleteInOrder(t *testing.T) {
	t.Parallel()
	var deleted []string
	fc, r := ready(t, intercepted(func(c call, make func() error) error {
		if name, ok := strings.CutPrefix(c.name, "delete "); ok {
			deleted = append(deleted, name)
		}
		return make()
	}))
	fc.loseLabel("v1.metrics.k8s.io")
	fc.delete(fc.backend())
	mustReconcile(t, r)
	if len(deleted) != 2 || !strings.Contains(deleted[0], "APIService v1.metrics") || !strings.Contains(deleted[1], "APIService v1beta1.metrics") {
		t.Fatalf("first deleted %v, want the APIServices and nothing else", deleted)
	}
	fc.wantCondition(v1alpha1.ConditionReady, "", v1alpha1.ReasonDeleting, "still in discovery")
	mustReconcile(t, r)
	if len(deleted) != 2 {
		t.Fatalf("deleted %v while versions are in discovery", deleted[2:])
	}
	fc.reconcileUntil(r, fc.isGone)
	service := slices.IndexFunc(deleted, func(name string) bool { return name == "*v1.PartialObjectMetadata metrics-serving-cluster" })
	if service < 2 {
		t.Errorf("deleted %v", deleted)
	}
	if left := fc.inventory(); strings.Contains(left, "/metrics-serving") {
		t.Errorf("left:\n%s", left)
	}
}

// A namespace that is gone or terminating does not keep the finalizer.
func TestDeleteWithoutNamespace(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*fakeCluster){
		"gone": func(fc *fakeCluster) {
			fc.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}})
		},
		"terminating": (*fakeCluster).deleteNamespace,
	}
	for name, end := range cases {
		t.Run(name, func(t *testing.T) {
			forbidden := false
			fc, r := ready(t, interceptor.Funcs{
				// Roles are gone with the namespace.
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					options := (&client.ListOptions{}).ApplyOptions(opts)
					if forbidden && options.Namespace == systemNamespace {
						return apierrors.NewForbidden(corev1.Resource("anything"), "", errors.New("no"))
					}
					return c.List(ctx, list, opts...)
				},
			})
			end(fc)
			forbidden = true
			fc.delete(fc.backend())
			fc.reconcileUntil(r, fc.isGone)
			if len(fc.apiServices()) > 0 || strings.Contains(fc.inventory(), "ClusterRole") {
				t.Errorf("left:\n%s", fc.inventory())
			}
		})
	}
}

// An object that a finalizer keeps is named, and the deletion waits for it.
func TestDeleteHeld(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	held := &corev1.Secret{}
	held.Namespace, held.Name = systemNamespace, "held"
	held.Labels = map[string]string{v1alpha1.LabelBackend: backendName}
	held.Finalizers = []string{"example.com/held"}
	fc.create(held)
	fc.delete(fc.backend())
	fc.reconcileRounds(r, 8)
	if c := fc.condition(v1alpha1.ConditionReady); c.Message != "removing Secret operator-ns/held" {
		t.Errorf("Ready is %+v", c)
	}
	fc.get(client.ObjectKeyFromObject(held), held)
	held.Finalizers = nil
	fc.update(held)
	fc.reconcileUntil(r, fc.isGone)
}

// Without our finalizer there is nothing to wait for.
func TestDeleteWithoutFinalizer(t *testing.T) {
	t.Parallel()
	backend := newBackend()
	backend.Finalizers = []string{"example.com/other"}
	fc := newFakeCluster(t, backend)
	fc.delete(fc.backend())
	before := fc.backend().ResourceVersion
	mustReconcile(t, fc.reconciler())
	if after := fc.backend().ResourceVersion; after != before {
		t.Error("it was written")
	}
}

// A process registers APIServices and ends before it writes the status; the next one
// deletes them and ends too. The third finds them neither in a list nor in the status,
// and must still wait for discovery.
func TestDeleteAfterLostStatus(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend())
	errKilled := errors.New("the process was killed")
	withoutStatus := func() interceptor.Funcs {
		return intercepted(func(c call, make func() error) error {
			if c.name == patchStatus {
				return errKilled
			}
			return make()
		})
	}
	fc.reconcileUntil(fc.reconciler(), func() bool { return fc.state("v1.metrics.k8s.io") == "Pending" && fc.allReady() })
	r := fc.reconciler(withoutStatus())
	for range 3 {
		if _, err := reconcileOnce(t, r); err == nil {
			t.Fatal("the status was written")
		}
	}
	fc.step()
	if !fc.isRegistered(v1) || !fc.discovered[v1] || fc.state("v1.metrics.k8s.io") != "Pending" {
		t.Fatalf("not what this test is about:\n%s", fc.show())
	}
	fc.delete(fc.backend())
	if _, err := reconcileOnce(t, fc.reconciler(withoutStatus())); err == nil || fc.isRegistered(v1) {
		t.Fatalf("registered %t, %v", fc.isRegistered(v1), err)
	}

	r = fc.reconciler()
	mustReconcile(t, r)
	if fc.isGone() || !strings.Contains(fc.inventory(), "Service operator-ns/metrics-serving-cluster") {
		t.Error("took the Service away while v1 is in discovery")
	}
	fc.reconcileUntil(r, fc.isGone)
}

func (fc *fakeCluster) allReady() bool {
	for _, p := range fc.pods() {
		if !isReady(&p) {
			return false
		}
	}
	return len(fc.pods()) > 0
}
