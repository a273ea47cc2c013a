// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inventory applies and prunes the objects that belong to a MetricsBackend.
// Ownership is the label metricsbackend.io/backend alone: not a name, not an
// ownerReference, and no list of objects that this binary knows.
package inventory

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
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

// Prune removes the backend's objects, except those in keep, in namespace, in kube-system
// and of the cluster scope. It leaves out APIServices, whose removal has its own order, and
// kinds that are not watched.
func (a *Applier) Prune(ctx context.Context, backend, namespace string, keep []manifests.Object) error {
	_, err := a.removeKinds(ctx, a.client, Watched(), backend, namespace, keep)
	return err
}

// RemoveAll removes all objects of the backend, except those in keep, kind by kind, and
// returns those that it found; all are gone once the result is empty. If namespace is empty,
// only objects outside of a namespace are removed. It bypasses the cache, which may lag behind.
func (a *Applier) RemoveAll(ctx context.Context, backend, namespace string, keep ...manifests.Object) ([]string, error) {
	return a.removeKinds(ctx, a.live, Removable(), backend, namespace, keep)
}

// RemoveAdmission is RemoveAll for the kinds of Admission.
func (a *Applier) RemoveAdmission(ctx context.Context, backend string) error {
	_, err := a.removeKinds(ctx, a.live, Admission(), backend, "", nil)
	return err
}

func (a *Applier) removeKinds(ctx context.Context, reader client.Reader, kinds []Kind, backend, namespace string, keep []manifests.Object) ([]string, error) {
	kept := map[objectID]bool{}
	for _, object := range keep {
		id, err := identify(object)
		if err != nil {
			return nil, err
		}
		kept[id] = true
	}
	var names []string
	for _, kind := range kinds {
		found, err := list(ctx, reader, kind, backend, namespace)
		if err != nil {
			return nil, err
		}
		for _, object := range found {
			id := objectID{kind.GroupVersionKind, client.ObjectKeyFromObject(object)}
			if kept[id] {
				continue
			}
			names = append(names, fmt.Sprintf("%s %s", kind.Kind, Path(id.ObjectKey)))
			if err := a.remove(ctx, id, object); err != nil {
				return nil, err
			}
		}
	}
	return names, nil
}

func list(ctx context.Context, reader client.Reader, kind Kind, backend, namespace string) ([]client.Object, error) {
	var namespaces []string
	switch {
	case kind.ClusterScoped:
		namespaces = []string{metav1.NamespaceAll}
	case namespace != "":
		namespaces = []string{namespace}
	}
	if kind.OutsideNamespace && namespace != metav1.NamespaceSystem {
		namespaces = append(namespaces, metav1.NamespaceSystem)
	}
	var found []client.Object
	for _, ns := range namespaces {
		objects := prototypeList(kind.GroupVersionKind)
		if err := reader.List(ctx, objects, client.InNamespace(ns), client.MatchingLabels{v1alpha1.LabelBackend: backend}); err != nil {
			return nil, fmt.Errorf("list each %s of the MetricsBackend: %w", kind.Kind, err)
		}
		// Fails for what is no list alone.
		_ = meta.EachListItem(objects, func(item runtime.Object) error {
			found = append(found, item.(client.Object))
			return nil
		})
	}
	return found, nil
}

// remove deletes the object as it was read: not a later one of the same name, and not one
// whose owner has changed since.
func (a *Applier) remove(ctx context.Context, id objectID, object client.Object) error {
	a.mu.Lock()
	delete(a.applied, id)
	a.mu.Unlock()
	if object.GetDeletionTimestamp() != nil {
		return nil
	}
	err := a.client.Delete(ctx, metadataOf(id), client.Preconditions{
		UID: ptr.To(object.GetUID()), ResourceVersion: ptr.To(object.GetResourceVersion()),
	}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s: %w", id.Kind, Path(id.ObjectKey), err)
	}
	return nil
}

func metadataOf(id objectID) client.Object {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(id.GroupVersionKind)
	object.SetNamespace(id.Namespace)
	object.SetName(id.Name)
	return object
}
