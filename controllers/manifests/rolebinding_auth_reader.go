// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
)

// AuthReaderRole is the Role in kube-system that every aggregated API server
// needs: it reads how kube-apiserver's own requests are recognised.
const AuthReaderRole = "extension-apiserver-authentication-reader"

// AuthReaderBinding gives serving pods AuthReaderRole. It is the only object
// outside the serving namespace that is not cluster-scoped.
func AuthReaderBinding(s Serving) *rbacv1ac.RoleBindingApplyConfiguration {
	return rbacv1ac.RoleBinding(s.Name()+"-auth-reader", metav1.NamespaceSystem).
		WithLabels(s.Labels()).
		WithRoleRef(roleRef(AuthReaderRole)).
		WithSubjects(account(s.Name(), s.Namespace))
}
