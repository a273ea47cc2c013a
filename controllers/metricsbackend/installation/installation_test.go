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

// binding is that of an earlier release, which serves in the namespace.
func binding(namespace string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics-serving-cluster", Labels: map[string]string{v1alpha1.LabelBackend: "cluster"}},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "metrics-serving-cluster"}},
	}
}

func TestDecide(t *testing.T) {
	const own, other, third = "own", "other", "third"
	claims := func(owner string, recorded bool, movingFrom string) Decision {
		return Decision{Standing: Claims, Owner: owner, Recorded: recorded, Claim: v1alpha1.InstallationStatus{Namespace: own, MovingFrom: movingFrom}}
	}
	labelled := func(object client.Object) client.Object {
		labels := object.GetLabels()
		labels[v1alpha1.LabelInstallation] = other
		object.SetLabels(labels)
		return object
	}
	apiService := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{
		Name: "v1.metrics.k8s.io", Labels: map[string]string{v1alpha1.LabelBackend: "cluster"},
	}}
	cases := map[string]struct {
		stored v1alpha1.InstallationStatus
		// wanted is the annotation, spec the field spec.namespace.
		wanted, spec string
		// unmanaged: this operator may not deploy into the namespace; stalled: the other one
		// has found that of itself.
		unmanaged, stalled bool
		objects            []client.Object
		want               Decision
	}{
		"its own": {
			stored: v1alpha1.InstallationStatus{Namespace: own}, want: Decision{Standing: Manages, Owner: own, Recorded: true},
		},
		"its own, assigned to another that has not claimed it": {
			stored: v1alpha1.InstallationStatus{Namespace: own}, wanted: other, want: Decision{Standing: Manages, Owner: own, Recorded: true},
		},
		"new": {want: claims("", false, "")},
		"new, assigned to another that runs": {
			wanted: other, objects: []client.Object{namespace(other), lease(other)}, want: Decision{Standing: Uninvolved},
		},
		"new, assigned to one that there is not": {wanted: third, want: claims("", false, "")},
		"its own of an earlier release":          {objects: []client.Object{binding(own)}, want: claims(own, false, "")},
		"of another": {
			stored: v1alpha1.InstallationStatus{Namespace: other}, objects: []client.Object{namespace(other)},
			want: Decision{Standing: Excluded, Owner: other, Recorded: true},
		},
		"of another of an earlier release": {
			objects: []client.Object{namespace(other), binding(other)},
			want:    Decision{Standing: Excluded, Owner: other},
		},
		"of another, by the label of a binding": {
			objects: []client.Object{namespace(other), labelled(binding(own))},
			want:    Decision{Standing: Excluded, Owner: other, Recorded: true},
		},
		"of another, by the label of an APIService": {
			objects: []client.Object{namespace(other), labelled(apiService)},
			want:    Decision{Standing: Excluded, Owner: other, Recorded: true},
		},
		"of an earlier release, with spec.namespace": {
			spec: third, objects: []client.Object{binding(third)}, want: claims("", false, ""),
		},
		"of another whose namespace is gone": {
			stored: v1alpha1.InstallationStatus{Namespace: other},
			want:   claims(other, true, other),
		},
		"of another whose namespace is gone, and spec.namespace": {
			stored: v1alpha1.InstallationStatus{Namespace: other}, spec: third,
			want: claims(other, true, ""),
		},
		"of another whose namespace went in the middle of a move": {
			stored: v1alpha1.InstallationStatus{Namespace: other, MovingFrom: third}, want: claims(other, true, third),
		},
		"assigned to this one": {
			stored: v1alpha1.InstallationStatus{Namespace: other}, wanted: own, objects: []client.Object{namespace(other), lease(other)},
			want: claims(other, true, other),
		},
		"assigned to this one, while it moves to the other from here": {
			stored: v1alpha1.InstallationStatus{Namespace: other, MovingFrom: own}, wanted: own, objects: []client.Object{namespace(other)},
			want: claims(other, true, other),
		},
		"assigned to this one, while it moves to the other from elsewhere": {
			stored: v1alpha1.InstallationStatus{Namespace: other, MovingFrom: third}, wanted: own, objects: []client.Object{namespace(other)},
			want: Decision{Standing: Uninvolved, Owner: other, Recorded: true},
		},
		"assigned to this one, but an earlier release runs": {
			wanted: own, objects: []client.Object{namespace(other), binding(other), lease(other)}, want: Decision{Standing: Excluded, Owner: other},
		},
		"assigned to this one, and an earlier release has stopped": {
			wanted: own, objects: []client.Object{namespace(other), binding(other)}, want: claims(other, false, other),
		},
		"assigned to the one that has it": {
			stored: v1alpha1.InstallationStatus{Namespace: other}, wanted: other, objects: []client.Object{namespace(other)},
			want: Decision{Standing: Uninvolved, Owner: other, Recorded: true},
		},
		"moved away from here": {
			stored: v1alpha1.InstallationStatus{Namespace: other, MovingFrom: own}, objects: []client.Object{namespace(other)},
			want: Decision{Standing: Uninvolved, Owner: other, Recorded: true},
		},
		"of another, in a namespace that is not for this one": {
			stored: v1alpha1.InstallationStatus{Namespace: other}, spec: third, unmanaged: true, objects: []client.Object{namespace(other)},
			want: Decision{Standing: Uninvolved, Owner: other, Recorded: true},
		},
		"of another that may not deploy": {
			stored: v1alpha1.InstallationStatus{Namespace: other}, spec: third, stalled: true, objects: []client.Object{namespace(other)},
			want: claims(other, true, ""),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			backend := &v1alpha1.MetricsBackend{ObjectMeta: metav1.ObjectMeta{Name: "cluster", Generation: 1}}
			backend.Spec.Namespace, backend.Status.Installation = tc.spec, tc.stored
			if tc.wanted != "" {
				backend.Annotations = map[string]string{v1alpha1.AnnotationInstallation: tc.wanted}
			}
			if tc.stalled {
				backend.Status.Conditions = []metav1.Condition{{
					Type: v1alpha1.ConditionStalled, Reason: v1alpha1.ReasonNamespaceNotManaged, ObservedGeneration: 1,
				}}
			}
			i := &Installation{Live: newReader(t, tc.objects...), Clock: testingclock.NewFakePassiveClock(start), Namespace: own}
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
	i := &Installation{Clock: simulated, Namespace: "own", Live: interceptor.NewClient(reader, interceptor.Funcs{
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
