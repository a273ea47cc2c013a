// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// admission has ExternalMetricsPolicies bind autoscalers when they are written, while
// no other implementation serves external metrics and there is such a kind. It returns
// what is to stay; the sweep takes away the rest.
func (r *Reconciler) admission(ctx context.Context, s *scope) ([]manifests.Object, error) {
	if s.spec.ExternalMetrics == nil || slices.ContainsFunc(s.yielded, isExternal) || s.othersServeExternal() {
		return nil, nil
	}
	exists, err := r.policiesExist(ctx)
	if err != nil || !exists {
		return nil, err
	}
	// The policy first: a binding alone is an error with each write of an autoscaler.
	objects := []manifests.Object{manifests.AdmissionPolicy(s.serving), manifests.AdmissionPolicyBinding(s.serving)}
	for _, object := range objects {
		if _, err := r.applier.Apply(ctx, s.backend.Name, object); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// othersServeExternal tells whether the API in use decides by no policy: until it is
// adopted, it is another implementation's. Other MetricsBackends decide by the same ones.
func (s *scope) othersServeExternal() bool {
	return slices.ContainsFunc(s.desired, func(gv schema.GroupVersion) bool {
		theirs := s.foreign[apiServiceName(gv)]
		return isExternal(gv) && theirs != nil && theirs.Labels[v1alpha1.LabelBackend] == ""
	})
}

func isExternal(gv schema.GroupVersion) bool { return gv.Group == manifests.ExternalMetricsGroup }

// policiesExist tells whether the CRD of ExternalMetricsPolicies is there:
// kube-apiserver takes no policy whose parameters it does not know.
func (r *Reconciler) policiesExist(ctx context.Context) (bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ExternalMetricsPolicyList"))
	err := r.Live.List(ctx, list, client.Limit(1))
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for ExternalMetricsPolicies: %w", err)
	}
	return true, nil
}
