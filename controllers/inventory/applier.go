// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// Applier brings objects to their desired state with server-side apply.
//
// It remembers the resourceVersion at which each desired state was in force, so
// that a steady state makes no request at all, while any change of the live
// object, whoever made it, is answered with an apply. kube-apiserver leaves an
// object untouched when an apply changes nothing.
type Applier struct {
	client client.Client
	// live reads around the cache, which knows labelled objects only: an object
	// that is not there may still exist without our label.
	live client.Reader

	// creating is held from the look for an object to its first apply: all backends
	// apply as one field owner, so that kube-apiserver would see no conflict between
	// two that make an object of the same name.
	creating sync.Mutex

	mu      sync.Mutex
	applied map[objectID]state
}

type objectID struct {
	schema.GroupVersionKind
	client.ObjectKey
}

type state struct {
	desired         [sha256.Size]byte
	resourceVersion string
	applied         Applied
}

// Applied is what is known of an object that is in its desired state.
type Applied struct {
	// UID tells the object from a later one of the same name.
	UID types.UID
	// Generation of its spec; 0 for kinds that have none.
	Generation int64
}

// NewApplier returns an Applier that writes with c and reads objects without
// our label with live.
func NewApplier(c client.Client, live client.Reader) *Applier {
	return &Applier{client: c, live: live, applied: map[objectID]state{}}
}

// Check returns a *NotOwnedError when the object exists and does not belong to
// the backend. It writes nothing.
func (a *Applier) Check(ctx context.Context, backend string, desired manifests.Object) error {
	id, err := identify(desired)
	if err != nil {
		return err
	}
	_, err = a.find(ctx, backend, id)
	return err
}

// Apply brings the object to its desired state. It returns a *NotOwnedError when
// the object exists and does not belong to the backend.
func (a *Applier) Apply(ctx context.Context, backend string, desired manifests.Object) (Applied, error) {
	id, err := identify(desired)
	if err != nil {
		return Applied{}, err
	}
	body, err := json.Marshal(desired)
	if err != nil {
		return Applied{}, fmt.Errorf("encode %s %s: %w", id.Kind, Path(id.ObjectKey), err)
	}
	sum := sha256.Sum256(body)
	found, err := a.find(ctx, backend, id)
	if err != nil {
		return Applied{}, err
	}
	if found == nil {
		a.creating.Lock()
		defer a.creating.Unlock()
		if found, err = a.find(ctx, backend, id); err != nil {
			return Applied{}, err
		}
	}
	if found != nil {
		if known, ok := a.recall(id); ok && known.desired == sum && known.resourceVersion == found.GetResourceVersion() {
			return known.applied, nil
		}
	}
	options := []client.ApplyOption{client.FieldOwner(v1alpha1.FieldOwner)}
	if found != nil {
		// Never for a new object: should someone else make one of this name at the
		// same moment, kube-apiserver reports a conflict of their fields with ours.
		options = append(options, client.ForceOwnership)
	}
	// The answer is read into desired.
	if err := a.client.Apply(ctx, desired, options...); err != nil {
		return Applied{}, fmt.Errorf("apply %s %s: %w", id.Kind, Path(id.ObjectKey), err)
	}
	now, err := observed(desired)
	if err != nil {
		return Applied{}, fmt.Errorf("read the answer for %s %s: %w", id.Kind, Path(id.ObjectKey), err)
	}
	now.desired = sum
	a.remember(id, now)
	return now.applied, nil
}

// find returns the object, or nil when there is none of that name.
func (a *Applier) find(ctx context.Context, backend string, id objectID) (client.Object, error) {
	object := Prototype(id.GroupVersionKind)
	var err error
	if id.Group == manifests.CertManagerGroup {
		// Never cached: a watch of a kind that may not exist keeps a cache from being ready.
		err = a.live.Get(ctx, id.ObjectKey, object)
	} else {
		err = a.client.Get(ctx, id.ObjectKey, object)
	}
	if apierrors.IsNotFound(err) {
		object = metadataOf(id)
		err = a.live.Get(ctx, id.ObjectKey, object)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get %s %s: %w", id.Kind, Path(id.ObjectKey), err)
	case object.GetLabels()[v1alpha1.LabelBackend] != backend:
		return nil, &NotOwnedError{
			Kind: id.GroupVersionKind, Key: id.ObjectKey,
			Backend: object.GetLabels()[v1alpha1.LabelBackend], Wanted: backend,
		}
	}
	return object, nil
}

func (a *Applier) recall(id objectID) (state, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, ok := a.applied[id]
	return s, ok
}

func (a *Applier) remember(id objectID, s state) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.applied[id] = s
}

// forget drops what is known about an object that was removed.
func (a *Applier) forget(id objectID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.applied, id)
}

func identify(desired manifests.Object) (objectID, error) {
	gv, err := schema.ParseGroupVersion(ptr.Deref(desired.GetAPIVersion(), ""))
	if err != nil {
		return objectID{}, fmt.Errorf("read the apiVersion of an apply configuration: %w", err)
	}
	return objectID{
		GroupVersionKind: gv.WithKind(ptr.Deref(desired.GetKind(), "")),
		ObjectKey:        client.ObjectKey{Namespace: ptr.Deref(desired.GetNamespace(), ""), Name: ptr.Deref(desired.GetName(), "")},
	}, nil
}

// observed reads the metadata of an apply configuration
// that holds kube-apiserver's answer; the generated types have no getters for them.
func observed(answer manifests.Object) (state, error) {
	body, err := json.Marshal(answer)
	if err != nil {
		return state{}, err
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &object); err != nil {
		return state{}, err
	}
	return state{
		resourceVersion: object.ResourceVersion,
		applied:         Applied{UID: object.UID, Generation: object.Generation},
	}, nil
}
