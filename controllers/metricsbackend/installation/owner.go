// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// owner returns the installation that manages the backend, or "": by the status, or, since a
// status does not survive a backup and restore, by the labels of the backend's objects.
func (i *Installation) owner(ctx context.Context, backend *v1alpha1.MetricsBackend) (string, error) {
	if name := backend.Status.Installation.Namespace; name != "" {
		return name, nil
	}
	var services apiregistrationv1.APIServiceList
	if err := i.APIReader.List(ctx, &services, client.MatchingLabels{v1alpha1.LabelBackend: backend.Name}); err != nil {
		return "", fmt.Errorf("list APIServices to find the operator of MetricsBackend %s: %w", backend.Name, err)
	}
	for _, service := range services.Items {
		if name := service.Labels[v1alpha1.LabelInstallation]; name != "" {
			return name, nil
		}
	}
	binding := &rbacv1.ClusterRoleBinding{}
	key := client.ObjectKey{Name: manifests.Serving{Backend: backend.Name}.Name()}
	if err := i.APIReader.Get(ctx, key, binding); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("get ClusterRoleBinding %s to find the operator of MetricsBackend %s: %w", key.Name, backend.Name, err)
	}
	if binding.Labels[v1alpha1.LabelBackend] != backend.Name {
		return "", nil
	}
	return binding.Labels[v1alpha1.LabelInstallation], nil
}
