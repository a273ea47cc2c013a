// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// owner returns the installation that manages the backend, or "", and whether it has
// recorded itself: in the status, or, since a status does not survive a backup and
// restore, in the labels of the backend's objects. Objects of an earlier release have no
// label; unless spec.namespace names serving's namespace, it is the operator's.
func (i *Installation) owner(ctx context.Context, backend *v1alpha1.MetricsBackend) (name string, recorded bool, err error) {
	if name := backend.Status.Installation.Namespace; name != "" {
		return name, true, nil
	}
	var services apiregistrationv1.APIServiceList
	if err := i.Live.List(ctx, &services, client.MatchingLabels{v1alpha1.LabelBackend: backend.Name}); err != nil {
		return "", false, fmt.Errorf("list APIServices to find the operator of MetricsBackend %s: %w", backend.Name, err)
	}
	for _, service := range services.Items {
		if name := service.Labels[v1alpha1.LabelInstallation]; name != "" {
			return name, true, nil
		}
	}
	binding := &rbacv1.ClusterRoleBinding{}
	key := client.ObjectKey{Name: manifests.Serving{Backend: backend.Name}.Name()}
	err = i.Live.Get(ctx, key, binding)
	switch {
	case apierrors.IsNotFound(err):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("get ClusterRoleBinding %s to find the operator of MetricsBackend %s: %w", key.Name, backend.Name, err)
	case binding.Labels[v1alpha1.LabelBackend] != backend.Name:
		return "", false, nil
	}
	if name := binding.Labels[v1alpha1.LabelInstallation]; name != "" {
		return name, true, nil
	}
	if backend.Spec.Namespace == "" && len(binding.Subjects) == 1 {
		return binding.Subjects[0].Namespace, false, nil
	}
	return "", false, nil
}
