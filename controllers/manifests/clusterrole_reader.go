// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
)

// ReaderClusterRole lets everyone who may view a namespace read its metrics: it
// is aggregated into view, edit and admin.
func ReaderClusterRole(s Serving) *rbacv1ac.ClusterRoleApplyConfiguration {
	return rbacv1ac.ClusterRole(s.Name() + "-reader").
		WithLabels(s.Labels()).
		WithLabels(map[string]string{
			"rbac.authorization.k8s.io/aggregate-to-view":  "true",
			"rbac.authorization.k8s.io/aggregate-to-edit":  "true",
			"rbac.authorization.k8s.io/aggregate-to-admin": "true",
		}).
		WithRules(rule([]string{"metrics.k8s.io"}, []string{"pods", "nodes"}, readVerbs))
}
