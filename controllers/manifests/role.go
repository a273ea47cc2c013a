// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
)

// Role lets a serving pod find its ready peers: its first readiness asks them
// which versions they serve.
func Role(s Serving) *rbacv1ac.RoleApplyConfiguration {
	return rbacv1ac.Role(s.Name(), s.Namespace).
		WithLabels(s.Labels()).
		WithRules(rule([]string{"discovery.k8s.io"}, []string{"endpointslices"}, readVerbs))
}

// RoleBinding gives serving pods their Role.
func RoleBinding(s Serving) *rbacv1ac.RoleBindingApplyConfiguration {
	return rbacv1ac.RoleBinding(s.Name(), s.Namespace).
		WithLabels(s.Labels()).
		WithRoleRef(roleRef(s.Name())).
		WithSubjects(account(s.Name(), s.Namespace))
}
