// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const ourQuota = "metrics-serving-" + backendName

// quotaFor returns a ResourceQuota in serving's namespace for pods of a priority class.
func quotaFor(class string, change ...func(*corev1.ResourceQuota)) *corev1.ResourceQuota {
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "other"},
		Spec: corev1.ResourceQuotaSpec{ScopeSelector: &corev1.ScopeSelector{
			MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{
				ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{class},
			}},
		}},
	}
	for _, c := range change {
		c(quota)
	}
	return quota
}

func withPriorityClass(class string) func(*v1alpha1.MetricsBackendSpec) {
	return func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.PriorityClassName = class }
}

// quotas returns the names of the ResourceQuotas in serving's namespace, sorted.
func (fc *fakeCluster) quotas() []string {
	fc.t.Helper()
	var list corev1.ResourceQuotaList
	fc.list(&list, client.InNamespace(systemNamespace))
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// Serving's namespace gets a ResourceQuota for a priority class that clusters limit, unless
// one of somebody else covers it. Ours stays once it exists.
func TestQuota(t *testing.T) {
	t.Parallel()
	deleting := func(quota *corev1.ResourceQuota) {
		quota.DeletionTimestamp, quota.Finalizers = &metav1.Time{Time: quota.CreationTimestamp.Add(1)}, []string{"example.com/held"}
	}
	elsewhere := func(quota *corev1.ResourceQuota) { quota.Namespace = "other-ns" }
	ofOther := func(quota *corev1.ResourceQuota) { quota.Labels = map[string]string{v1alpha1.LabelBackend: "other"} }
	cases := map[string]struct {
		class string
		quota *corev1.ResourceQuota
		// then is done when the backend is ready.
		then func(*fakeCluster)
		want []string
	}{
		"none":                                 {want: []string{ourQuota}},
		"the other class of the system":        {class: "system-node-critical", want: []string{ourQuota}},
		"a class of the user":                  {class: "mine"},
		"somebody else's":                      {quota: quotaFor("system-cluster-critical"), want: []string{"other"}},
		"somebody else's for the other class":  {quota: quotaFor("system-node-critical"), want: []string{ourQuota, "other"}},
		"somebody else's in another namespace": {quota: quotaFor("system-cluster-critical", elsewhere), want: []string{ourQuota}},
		"somebody else's that is deleted":      {quota: quotaFor("system-cluster-critical", deleting), want: []string{ourQuota, "other"}},
		"of another MetricsBackend":            {quota: quotaFor("system-cluster-critical", ofOther), want: []string{ourQuota, "other"}},
		"somebody else's is deleted later": {
			quota: quotaFor("system-cluster-critical"),
			then:  func(fc *fakeCluster) { fc.delete(quotaFor("system-cluster-critical")) },
			want:  []string{ourQuota},
		},
		"somebody else's comes later": {
			then: func(fc *fakeCluster) { fc.create(quotaFor("system-cluster-critical")) },
			want: []string{ourQuota, "other"},
		},
		"another class later, while the former revision may need it": {
			then: func(fc *fakeCluster) { fc.change(withPriorityClass("mine")) },
			want: []string{ourQuota},
		},
		"the user's class is changed to the system's": {
			class: "mine",
			then:  func(fc *fakeCluster) { fc.change(withPriorityClass("system-cluster-critical")) },
			want:  []string{ourQuota},
		},
		"ours is deleted": {
			then: func(fc *fakeCluster) { fc.delete(quotaFor("", func(q *corev1.ResourceQuota) { q.Name = ourQuota })) },
			want: []string{ourQuota},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := []client.Object{newBackend(withPriorityClass(tc.class))}
			if tc.quota != nil {
				objects = append(objects, tc.quota)
			}
			fc := newFakeCluster(t, objects...)
			r := fc.reconciler()
			fc.reconcileUntil(r, fc.isReady)
			if tc.then != nil {
				tc.then(fc)
				fc.reconcileRounds(r, 5)
			}
			if diff := cmp.Diff(tc.want, fc.quotas()); diff != "" {
				t.Errorf("ResourceQuotas (-want +got):\n%s", diff)
			}
		})
	}
}

// The quota is there before the Deployment, and until after it.
func TestQuotaOutlivesTheDeployment(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend())
	var order []string
	r := fc.reconciler(interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if named, ok := o.(interface{ GetKind() *string }); ok {
				order = append(order, "apply "+*named.GetKind())
			}
			return c.Apply(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			order = append(order, "delete "+o.GetObjectKind().GroupVersionKind().Kind)
			return c.Delete(ctx, o, opts...)
		},
	})
	fc.reconcileUntil(r, fc.isReady)
	fc.delete(fc.backend())
	fc.reconcileUntil(r, fc.isGone)
	var previous int
	for _, write := range []string{"apply ResourceQuota", "apply Deployment", "delete Deployment", "delete ResourceQuota"} {
		at := slices.Index(order, write)
		if at < previous {
			t.Errorf("%q is write %d, want it after write %d of %q", write, at, previous, order)
		}
		previous = at
	}
	if left := fc.quotas(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Where the quota is refused, as by one that limits their number, everything else is done:
// most clusters need none.
func TestQuotaRefused(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend())
	fc.reconcileUntil(fc.reconciler(interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if quota, ok := o.(*corev1ac.ResourceQuotaApplyConfiguration); ok {
				return apierrors.NewForbidden(corev1.Resource("resourcequotas"), *quota.Name, errors.New("exceeded quota: objects"))
			}
			return c.Apply(ctx, o, opts...)
		},
	}), fc.isReady)
	if got := fc.quotas(); len(got) > 0 {
		t.Errorf("ResourceQuotas %v: nothing was refused", got)
	}
}

// An informer without permission to list its kind ends the operator.
func TestQuotasAreNotWatched(t *testing.T) {
	t.Parallel()
	for object := range CacheOptions([]string{systemNamespace}).ByObject {
		if _, typed := object.(*corev1.ResourceQuota); typed || object.GetObjectKind().GroupVersionKind().Kind == "ResourceQuota" {
			t.Errorf("there is an informer: %T", object)
		}
	}
}
