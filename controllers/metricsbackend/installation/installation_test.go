// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

var start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func newReader(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, rbacv1.AddToScheme, coordinationv1.AddToScheme, apiregistrationv1.AddToScheme,
	} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(kinds).WithObjects(objects...).Build()
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func lease(namespace string) *coordinationv1.Lease {
	renewed := metav1.NewMicroTime(start)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: LeaseName}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed},
	}
}

func TestDecide(t *testing.T) {
	const own, other, third = "own", "other", "third"
	labels := map[string]string{v1alpha1.LabelBackend: "cluster", v1alpha1.LabelInstallation: other}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "metrics-serving-cluster", Labels: labels}}
	apiService := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1.metrics.k8s.io", Labels: labels}}
	ofSomeone := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "metrics-serving-cluster", Labels: map[string]string{v1alpha1.LabelInstallation: other}}}
	ofOwn := binding.DeepCopy()
	ofOwn.Labels[v1alpha1.LabelInstallation] = own
	terminating := namespace(other)
	terminating.Finalizers, terminating.DeletionTimestamp = []string{"kubernetes"}, &metav1.Time{Time: start}
	cases := map[string]struct {
		// stored is the owner in the status, spec the field spec.serving.namespace.
		stored, spec string
		// unmanaged: this operator may not deploy into the namespace; stalled: the other one
		// has found that of itself.
		unmanaged, stalled bool
		objects            []client.Object
		want               Decision
	}{
		"its own":                               {stored: own, want: Decision{Manages, own}},
		"new":                                   {want: Decision{Claims, ""}},
		"new, beside a binding of someone":      {objects: []client.Object{ofSomeone}, want: Decision{Claims, ""}},
		"its own, by the label of a binding":    {objects: []client.Object{ofOwn}, want: Decision{Claims, own}},
		"of another":                            {stored: other, objects: []client.Object{namespace(other)}, want: Decision{Excluded, other}},
		"of another, by the label of a binding": {objects: []client.Object{namespace(other), binding}, want: Decision{Excluded, other}},
		"of another, by the label of an APIService":   {objects: []client.Object{namespace(other), apiService}, want: Decision{Excluded, other}},
		"of another whose namespace is gone":          {stored: other, want: Decision{Claims, other}},
		"of another whose namespace is being deleted": {stored: other, objects: []client.Object{terminating}, want: Decision{Claims, other}},
		"of another, in a namespace that is not for this one": {
			stored: other, spec: third, unmanaged: true, objects: []client.Object{namespace(other)}, want: Decision{Uninvolved, other},
		},
		"of another that may not deploy": {
			stored: other, spec: third, stalled: true, objects: []client.Object{namespace(other)}, want: Decision{Claims, other},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			backend := &v1alpha1.MetricsBackend{ObjectMeta: metav1.ObjectMeta{Name: "cluster", Generation: 1}}
			backend.Spec.Serving.Namespace, backend.Status.Installation.Namespace = tc.spec, tc.stored
			if tc.stalled {
				backend.Status.Conditions = []metav1.Condition{{
					Type: v1alpha1.ConditionStalled, Reason: v1alpha1.ReasonNamespaceNotManaged, ObservedGeneration: 1,
				}}
			}
			i := &Installation{APIReader: newReader(t, tc.objects...), Clock: testingclock.NewFakePassiveClock(start), Namespace: own}
			got, err := i.Decide(t.Context(), backend, !tc.unmanaged)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Another operator runs while its Lease changes, whatever its clock says.
func TestRunning(t *testing.T) {
	simulated := testingclock.NewFakePassiveClock(start)
	there := lease("other")
	reader := newReader(t, there)
	forbidden := false
	i := &Installation{Clock: simulated, Namespace: "own", APIReader: interceptor.NewClient(reader, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if forbidden {
				return apierrors.NewForbidden(coordinationv1.Resource("leases"), key.Name, errors.New("no right"))
			}
			return c.Get(ctx, key, o, opts...)
		},
	})}
	want := func(running bool, when string) {
		t.Helper()
		if got := i.Running(t.Context(), "other"); got != running {
			t.Errorf("%s: running is %t", when, got)
		}
	}
	renew := func(by time.Time) {
		t.Helper()
		at := metav1.NewMicroTime(by)
		there.Spec.RenewTime = &at
		if err := reader.Update(t.Context(), there); err != nil {
			t.Fatal(err)
		}
	}
	pass := func(d time.Duration) { simulated.SetTime(simulated.Now().Add(d)) }
	want(true, "at first")
	pass(leaseTimeout - time.Second)
	want(true, "just before the timeout")
	pass(time.Second)
	want(false, "after the timeout")
	renew(start.Add(-time.Hour))
	want(true, "renewed by a clock that is late")
	forbidden = true
	pass(time.Hour)
	want(true, "not readable")
	forbidden = false
	want(false, "not renewed for an hour")
	if err := reader.Delete(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	want(false, "gone")
}
