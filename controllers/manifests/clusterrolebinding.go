// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
)

// ClusterRoleBinding gives serving pods their ClusterRole.
func ClusterRoleBinding(s Serving) *rbacv1ac.ClusterRoleBindingApplyConfiguration {
	return rbacv1ac.ClusterRoleBinding(s.Name()).
		WithLabels(s.Labels()).
		WithRoleRef(clusterRoleRef(s.Name())).
		WithSubjects(account(s.Name(), s.Namespace))
}

// AuthDelegatorBinding lets serving pods have kube-apiserver check tokens
// (TokenReview) and rights (SubjectAccessReview).
func AuthDelegatorBinding(s Serving) *rbacv1ac.ClusterRoleBindingApplyConfiguration {
	return rbacv1ac.ClusterRoleBinding(s.Name() + "-auth-delegator").
		WithLabels(s.Labels()).
		WithRoleRef(clusterRoleRef("system:auth-delegator")).
		WithSubjects(account(s.Name(), s.Namespace))
}

// ObjectsRole is the ClusterRole, installed with the operator, that knows the objects
// which custom metrics describe. Others are aggregated into it.
const ObjectsRole = "metrics-backend-serving-objects"

// ObjectsClusterRoleBinding gives serving pods ObjectsRole, for the label selectors of
// custom metrics; nil unless the spec has any.
func ObjectsClusterRoleBinding(s Serving) *rbacv1ac.ClusterRoleBindingApplyConfiguration {
	if !s.CustomMetrics {
		return nil
	}
	return rbacv1ac.ClusterRoleBinding(s.Name() + "-objects").
		WithLabels(s.Labels()).
		WithRoleRef(clusterRoleRef(ObjectsRole)).
		WithSubjects(account(s.Name(), s.Namespace))
}

// ProberClusterRoleBinding gives the operator's probes their ClusterRole.
func ProberClusterRoleBinding(s Serving) *rbacv1ac.ClusterRoleBindingApplyConfiguration {
	return rbacv1ac.ClusterRoleBinding(s.ProberName()).
		WithLabels(s.Labels()).
		WithRoleRef(clusterRoleRef(s.ProberName())).
		WithSubjects(account(s.ProberName(), s.Namespace))
}

func clusterRoleRef(name string) *rbacv1ac.RoleRefApplyConfiguration {
	return rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(name)
}

func roleRef(name string) *rbacv1ac.RoleRefApplyConfiguration {
	return rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("Role").WithName(name)
}

func account(name, namespace string) *rbacv1ac.SubjectApplyConfiguration {
	return rbacv1ac.Subject().WithKind(rbacv1.ServiceAccountKind).WithName(name).WithNamespace(namespace)
}
