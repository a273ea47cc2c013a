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

// admission applies the policy that checks ExternalMetricsPolicies when autoscalers are
// written, unless another implementation serves external metrics or the CRD is missing.
// It returns the objects that the prune must keep.
func (r *Reconciler) admission(ctx context.Context, s *reconcileState) ([]manifests.Object, error) {
	if s.spec.ExternalMetrics == nil || slices.ContainsFunc(s.excluded(), isExternal) || s.othersServeExternal() {
		return nil, nil
	}
	exists, err := r.policiesExist(ctx)
	if err != nil || !exists {
		return nil, err
	}
	// The policy first: with a binding alone, every write of an autoscaler fails.
	objects := []manifests.Object{manifests.AdmissionPolicy(s.serving), manifests.AdmissionPolicyBinding(s.serving)}
	for _, object := range objects {
		if _, err := r.applier.Apply(ctx, s.backend.Name, object); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// othersServeExternal reports whether an implementation that is no MetricsBackend serves
// external metrics. It applies no ExternalMetricsPolicies.
func (s *reconcileState) othersServeExternal() bool {
	return slices.ContainsFunc(s.versions.desired, func(gv schema.GroupVersion) bool {
		other := s.versions.foreign[apiServiceName(gv)]
		return isExternal(gv) && other != nil && other.Labels[v1alpha1.LabelBackend] == ""
	})
}

func isExternal(gv schema.GroupVersion) bool { return gv.Group == manifests.ExternalMetricsGroup }

// policiesExist reports whether the CRD of ExternalMetricsPolicies exists. kube-apiserver
// rejects a policy whose parameter kind it does not know.
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
