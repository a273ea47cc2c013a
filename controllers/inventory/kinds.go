// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inventory applies and prunes the objects that belong to a MetricsBackend.
// Ownership is the label metricsbackend.io/backend alone: not a name, not an
// ownerReference, and no list of objects that this binary knows.
package inventory

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

var quotaKind = corev1.SchemeGroupVersion.WithKind("ResourceQuota")

// Kind is a kind of object that belongs to a MetricsBackend.
type Kind struct {
	schema.GroupVersionKind
	// ClusterScoped objects are in no namespace.
	ClusterScoped bool
	// OutsideNamespace objects may be in kube-system, too.
	OutsideNamespace bool
}

// Admission returns the kinds that admit other clients' writes, in the order of their
// removal: a binding before its policy.
func Admission() []Kind {
	return []Kind{
		{GroupVersionKind: admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"), ClusterScoped: true},
		{GroupVersionKind: admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"), ClusterScoped: true},
	}
}

// Removable returns all kinds but APIService, in the order of their removal: what keeps
// pods alive is removed before them, and what pods need after.
func Removable() []Kind {
	return append(Admission(), []Kind{
		{GroupVersionKind: policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget")},
		{GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy")},
		{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("Deployment")},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret")},
		{GroupVersionKind: quotaKind},
		{GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), OutsideNamespace: true},
		{GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("Role")},
		{GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"), ClusterScoped: true},
		{GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), ClusterScoped: true},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ServiceAccount")},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Service")},
	}...)
}

// Watched returns the kinds of Removable that are in the cache.
func Watched() []Kind {
	return slices.DeleteFunc(Removable(), func(kind Kind) bool { return isOptional(kind.GroupVersionKind) })
}

// isOptional reports whether the operator works without the kind. It is read around the
// cache: one informer that fails ends the operator.
func isOptional(kind schema.GroupVersionKind) bool {
	return kind.Group == manifests.CertManagerGroup || kind == quotaKind
}

// Prototype returns an empty object of kind to watch and to read into: a typed one if a
// phase reads more than metadata, so that each kind has exactly one informer.
func Prototype(kind schema.GroupVersionKind) client.Object {
	switch kind {
	case appsv1.SchemeGroupVersion.WithKind("Deployment"):
		return &appsv1.Deployment{}
	case apiregistrationv1.SchemeGroupVersion.WithKind("APIService"):
		return &apiregistrationv1.APIService{}
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}

// prototypeList returns the list type of Prototype.
func prototypeList(kind schema.GroupVersionKind) client.ObjectList {
	if kind == appsv1.SchemeGroupVersion.WithKind("Deployment") {
		return &appsv1.DeploymentList{}
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list
}
