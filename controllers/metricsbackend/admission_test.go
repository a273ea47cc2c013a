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

// admission tells which of the two objects there are: the policy and its binding.
func (w *world) admission() (policy, binding bool) {
	w.t.Helper()
	key := client.ObjectKey{Name: manifests.AdmissionPolicyName}
	err := w.raw.Get(w.t.Context(), key, &admissionregistrationv1.ValidatingAdmissionPolicy{})
	w.must(client.IgnoreNotFound(err))
	policy = err == nil
	err = w.raw.Get(w.t.Context(), key, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{})
	w.must(client.IgnoreNotFound(err))
	return policy, err == nil
}

func (w *world) wantAdmission(when string, want bool) {
	w.t.Helper()
	if policy, binding := w.admission(); policy != want || binding != want {
		w.t.Errorf("%s: policy %t, binding %t, want %t", when, policy, binding, want)
	}
}

// Autoscalers are bound while external metrics are served, and no longer.
func TestAdmission(t *testing.T) {
	t.Parallel()
	w, r := ready(t)
	w.wantAdmission("resource metrics alone", false)
	w.change(withExternal)
	mustReconcile(t, r)
	w.wantAdmission("with external metrics", true)
	w.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.ExternalMetrics = nil })
	// After the version has left discovery.
	w.settle(r, func() bool { policy, binding := w.admission(); return !policy && !binding })
	if w.isRegistered(schema.GroupVersion{Group: manifests.ExternalMetricsGroup, Version: "v1beta1"}) {
		t.Error("autoscalers are not bound any more although the API is served")
	}
}

// Another implementation decides by no policy, so nobody is refused for one while it is
// what answers.
func TestAdmissionOfAnothersAPI(t *testing.T) {
	t.Parallel()
	w, r := ready(t)
	external := schema.GroupVersion{Group: manifests.ExternalMetricsGroup, Version: "v1beta1"}
	theirs := w.apiService(v1beta1).DeepCopy()
	theirs.ObjectMeta = metav1.ObjectMeta{Name: apiServiceName(external)}
	theirs.Spec.Group, theirs.Spec.Version = external.Group, external.Version
	theirs.Spec.Service.Name = "adapter"
	w.create(theirs)
	w.saysAvailable(theirs, apiregistrationv1.ConditionTrue, "Passed")
	w.change(func(spec *v1alpha1.MetricsBackendSpec) {
		withExternal(spec)
		spec.Adoption = v1alpha1.AdoptionIfUnavailable
	})
	w.rounds(r, 5)
	w.wantAdmission("while another implementation answers", false)
	w.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Adoption = v1alpha1.AdoptionAlways })
	w.settle(r, func() bool { policy, binding := w.admission(); return policy && binding })
	w.wantLeadsTo(external, ourService) // and autoscalers are not bound before
}

// An heir binds autoscalers as soon as the elder does not any more, by the same policies,
// and not only once it has taken the API over.
func TestAdmissionOfAnHeir(t *testing.T) {
	t.Parallel()
	external := schema.GroupVersion{Group: manifests.ExternalMetricsGroup, Version: "v1beta1"}
	w := newWorld(t, newBackend(withExternal), elder(withExternal))
	r := w.live()
	bound := func() bool { policy, binding := w.admission(); return policy && binding }
	w.settleBoth(r, func() bool { return w.leadsNow(external) == elderService && w.isWaiting() && bound() })
	w.delete(elder())
	w.reconcileBoth(r)
	w.wantAdmission("while the elder answers", true)
	w.wantLeadsTo(external, elderService)
}

// Without the CRD of the policies kube-apiserver would refuse the objects.
func TestAdmissionWithoutPolicies(t *testing.T) {
	t.Parallel()
	missing := true
	w, r := ready(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if missing && list.GetObjectKind().GroupVersionKind().Kind == "ExternalMetricsPolicyList" {
			return apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.GroupName, Resource: "externalmetricspolicies"}, "")
		}
		return c.List(ctx, list, opts...)
	}})
	w.change(withExternal)
	mustReconcile(t, r)
	w.wantAdmission("without the CRD", false)
	missing = false
	mustReconcile(t, r)
	w.wantAdmission("with the CRD", true)
}

// A deletion frees autoscalers before anything else, also when it then hangs.
func TestAdmissionGoesFirst(t *testing.T) {
	t.Parallel()
	stuck := errors.New("stuck")
	w, r := ready(t, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		switch o.GetObjectKind().GroupVersionKind().Kind {
		case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			return c.Delete(ctx, o, opts...)
		}
		return stuck
	}})
	w.change(withExternal)
	mustReconcile(t, r)
	w.wantAdmission("before", true)
	w.delete(w.backend())
	if _, err := reconcileOnce(t, r); !errors.Is(err, stuck) {
		t.Errorf("got %v", err)
	}
	w.wantAdmission("while the deletion hangs", false)
}
