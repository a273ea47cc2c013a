// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Role lets a serving pod find its ready peers: its first readiness asks them
// which versions they serve. And it lets it follow the Secrets that the sources name,
// each by its name and no other; an informer reads by list and watch alone.
func Role(s Serving) *rbacv1ac.RoleApplyConfiguration {
	rules := []*rbacv1ac.PolicyRuleApplyConfiguration{rule([]string{"discovery.k8s.io"}, []string{"endpointslices"}, readVerbs)}
	if names := v1alpha1.SourceSecrets(s.Sources); len(names) > 0 {
		rules = append(rules, rule([]string{""}, []string{"secrets"}, []string{"list", "watch"}).WithResourceNames(names...))
	}
	return rbacv1ac.Role(s.Name(), s.Namespace).WithLabels(s.Labels()).WithRules(rules...)
}

// RoleBinding gives serving pods their Role.
func RoleBinding(s Serving) *rbacv1ac.RoleBindingApplyConfiguration {
	return rbacv1ac.RoleBinding(s.Name(), s.Namespace).
		WithLabels(s.Labels()).
		WithRoleRef(roleRef(s.Name())).
		WithSubjects(account(s.Name(), s.Namespace))
}
