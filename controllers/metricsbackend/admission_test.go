// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

func withExternal(spec *v1alpha1.MetricsBackendSpec) {
	spec.Sources = []v1alpha1.SourceSpec{{Name: "main", Prometheus: &v1alpha1.PrometheusSource{URL: "http://prometheus.example:9090"}}}
	spec.ExternalMetrics = &v1alpha1.ExternalMetricsSpec{}
}

// admission reports whether the policy and its binding exist.
func (fc *fakeCluster) admission() (policy, binding bool) {
	fc.t.Helper()
	key := client.ObjectKey{Name: manifests.AdmissionPolicyName}
	err := fc.raw.Get(fc.t.Context(), key, &admissionregistrationv1.ValidatingAdmissionPolicy{})
	fc.must(client.IgnoreNotFound(err))
	policy = err == nil
	err = fc.raw.Get(fc.t.Context(), key, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{})
	fc.must(client.IgnoreNotFound(err))
	return policy, err == nil
}

func (fc *fakeCluster) wantAdmission(when string, want bool) {
	fc.t.Helper()
	if policy, binding := fc.admission(); policy != want || binding != want {
		fc.t.Errorf("%s: policy %t, binding %t, want %t", when, policy, binding, want)
	}
}

// The policy exists while external metrics are served, and no longer.
func TestAdmission(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	fc.wantAdmission("resource metrics alone", false)
	fc.change(withExternal)
	mustReconcile(t, r)
	fc.wantAdmission("with external metrics", true)
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.ExternalMetrics = nil })
	// After the version left discovery.
	fc.reconcileUntil(r, func() bool { policy, binding := fc.admission(); return !policy && !binding })
	if fc.isRegistered(schema.GroupVersion{Group: manifests.ExternalMetricsGroup, Version: "v1beta1"}) {
		t.Error("autoscalers are not bound any more although the API is served")
	}
}

// Another implementation applies no ExternalMetricsPolicies, so no autoscaler is rejected
// while it serves the API.
func TestAdmissionOfAnothersAPI(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	external := schema.GroupVersion{Group: manifests.ExternalMetricsGroup, Version: "v1beta1"}
	other := fc.apiService(v1beta1).DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{Name: apiServiceName(external)}
	other.Spec.Group, other.Spec.Version = external.Group, external.Version
	other.Spec.Service.Name = "adapter"
	fc.create(other)
	fc.setAvailable(other, apiregistrationv1.ConditionTrue, "Passed")
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
		withExternal(spec)
		spec.ExternalMetrics.Adoption = v1alpha1.AdoptionIfUnavailable
	})
	fc.reconcileRounds(r, 5)
	fc.wantAdmission("while another implementation answers", false)
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.ExternalMetrics.Adoption = v1alpha1.AdoptionAlways })
	fc.reconcileUntil(r, func() bool { policy, binding := fc.admission(); return policy && binding })
	fc.wantPointsTo(external, ourService) // and the policy was not applied before
}

// The policy passes from the older backend to its successor, which does not wait for the
// API first.
func TestAdmissionOfASuccessor(t *testing.T) {
	t.Parallel()
	external := schema.GroupVersion{Group: manifests.ExternalMetricsGroup, Version: "v1beta1"}
	fc := newFakeCluster(t, newBackend(withExternal), olderBackend(withExternal))
	r := fc.live()
	bound := func() bool { policy, binding := fc.admission(); return policy && binding }
	fc.reconcileBothUntil(r, func() bool { return fc.pointsToNow(external) == olderService && fc.isWaitingForOlder() && bound() })
	fc.delete(olderBackend())
	fc.reconcileBoth(r)
	fc.wantAdmission("while the older backend serves", true)
	fc.wantPointsTo(external, olderService)
}

// Without the CRD kube-apiserver would reject the objects.
func TestAdmissionWithoutPolicies(t *testing.T) {
	t.Parallel()
	missing := true
	fc, r := ready(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if missing && list.GetObjectKind().GroupVersionKind().Kind == "ExternalMetricsPolicyList" {
			return apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.GroupName, Resource: "externalmetricspolicies"}, "")
		}
		return c.List(ctx, list, opts...)
	}})
	fc.change(withExternal)
	mustReconcile(t, r)
	fc.wantAdmission("without the CRD", false)
	missing = false
	mustReconcile(t, r)
	fc.wantAdmission("with the CRD", true)
}

// A deletion removes the policy before anything else, even if it then makes no progress.
func TestAdmissionGoesFirst(t *testing.T) {
	t.Parallel()
	stuck := errors.New("stuck")
	fc, r := ready(t, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		switch o.GetObjectKind().GroupVersionKind().Kind {
		case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			return c.Delete(ctx, o, opts...)
		}
		return stuck
	}})
	fc.change(withExternal)
	mustReconcile(t, r)
	fc.wantAdmission("before", true)
	fc.delete(fc.backend())
	if _, err := reconcileOnce(t, r); !errors.Is(err, stuck) {
		t.Errorf("got %v", err)
	}
	fc.wantAdmission("while the deletion hangs", false)
}
