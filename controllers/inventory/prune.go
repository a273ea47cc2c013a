// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

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
