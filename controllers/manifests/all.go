// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is a typed apply configuration of a named object.
type Object interface {
	runtime.ApplyConfiguration
	GetName() *string
	GetNamespace() *string
	GetKind() *string
	GetAPIVersion() *string
}

// All returns every object of a backend but its Secrets and APIServices, in the
// order in which they are applied: what a pod needs comes before the Deployment.
func All(s Serving) []Object {
	objects := []Object{
		ServiceAccount(s),
		ProberServiceAccount(s),
		ClusterRole(s),
		ReaderClusterRole(s),
		ProberClusterRole(s),
		ClusterRoleBinding(s),
		AuthDelegatorBinding(s),
		ProberClusterRoleBinding(s),
		AuthReaderBinding(s),
		Role(s),
		RoleBinding(s),
		Service(s),
	}
	if binding := ObjectsClusterRoleBinding(s); binding != nil {
		objects = append(objects, binding)
	}
	if policy := NetworkPolicy(s); policy != nil {
		objects = append(objects, policy)
	}
	if budget := PodDisruptionBudget(s); budget != nil {
		objects = append(objects, budget)
	}
	return append(objects, Deployment(s))
}
