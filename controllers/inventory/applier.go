// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// Applier brings objects to their desired state with server-side apply.
//
// It remembers each object as kube-apiserver stored it, with what webhooks and policies have
// added, so that a steady state sends no requests, and a change of the live object by someone
// else causes an apply. If that goes on, the pauses between two applies grow.
type Applier struct {
	client client.Client
	clock  clock.PassiveClock
	// live bypasses the cache, which holds labelled objects only: an object that is not
	// in the cache may exist without our label.
	live client.Reader

	// creating is held from the read of a missing object until it is applied: all
	// backends apply with one field owner, so kube-apiserver detects no conflict between
	// two that create an object of the same name.
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
	// spec is that of a Deployment, whose generation counts changes of annotations, too.
	spec    *appsv1.DeploymentSpec
	applied Applied
	// at is when it was applied, and corrections how often in a row since others changed it.
	at          time.Time
	corrections int
}

const (
	// settleTime is how long the cache may be behind an apply.
	settleTime = time.Minute
	// firstPause doubles with each correction of a change by others, up to maxPause, and is kept
	// from the second one on.
	firstPause     = 30 * time.Second
	maxPause       = 5 * time.Minute
	maxCorrections = 4
)

// Applied identifies an object that matches its desired state.
type Applied struct {
	// UID distinguishes the object from a later one of the same name.
	UID types.UID
	// Generation is 0 for kinds that have none.
	Generation int64
	// ChangedBy is the field manager that has changed the object again after it was corrected, or
	// empty.
	ChangedBy string
}

// NewApplier returns an Applier that writes with c, and reads objects without our label
// with live.
func NewApplier(c client.Client, live client.Reader, clock clock.PassiveClock) *Applier {
	return &Applier{client: c, live: live, clock: clock, applied: map[objectID]state{}}
}

// Check returns a *NotOwnedError if the object exists and does not belong to the backend.
// It writes nothing.
func (a *Applier) Check(ctx context.Context, backend string, desired manifests.Object) error {
	id, err := identify(desired)
	if err != nil {
		return err
	}
	_, err = a.find(ctx, backend, id)
	return err
}

// Apply brings the object to its desired state. It returns a *NotOwnedError if the object
// exists and does not belong to the backend.
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
	corrections, changedBy := 0, ""
	var known []string // resourceVersions, none of which the answer has if it changed what others wrote
	if found != nil {
		a.mu.Lock()
		last := a.applied[id]
		a.mu.Unlock()
		if last.desired == sum && last.applied.UID == found.GetUID() {
			since, pause := a.clock.Since(last.at), min(firstPause<<last.corrections, maxPause)
			if since > 4*pause { // what others did before is over
				last.applied.ChangedBy, last.corrections = "", 0
			}
			if last.isCurrent(found, body, since) || last.corrections > 1 && since < pause {
				return last.applied, nil
			}
			known = []string{last.resourceVersion, found.GetResourceVersion()}
			if corrections = last.corrections; corrections > 0 {
				changedBy = a.changedBy(ctx, id)
			}
		}
	}
	options := []client.ApplyOption{client.FieldOwner(v1alpha1.FieldOwner)}
	if found != nil {
		// Not for a new object: if another client creates one of this name at the same
		// time, kube-apiserver must report the conflict.
		options = append(options, client.ForceOwnership)
	}
	// Apply decodes the response into desired.
	if err := a.client.Apply(ctx, desired, options...); err != nil {
		return Applied{}, fmt.Errorf("apply %s %s: %w", id.Kind, Path(id.ObjectKey), err)
	}
	now, err := observed(desired)
	if err != nil {
		return Applied{}, fmt.Errorf("read the answer for %s %s: %w", id.Kind, Path(id.ObjectKey), err)
	}
	now.desired, now.at, now.applied.ChangedBy = sum, a.clock.Now(), changedBy
	if id.Kind != "APIService" && len(known) > 0 && !slices.Contains(known, now.resourceVersion) {
		now.corrections = min(corrections+1, maxCorrections)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.applied[id] = now
	return now.applied, nil
}

// isCurrent reports whether the object is as it was stored, since some time ago, or is read from a cache that is behind
// that. body is the desired object as JSON. Its status, and what others add to its metadata, does not count: where a policy changes each update, an apply
// would make a new generation.
func (s state) isCurrent(found client.Object, body []byte, since time.Duration) bool {
	if s.applied.Generation == 0 {
		return s.resourceVersion == found.GetResourceVersion()
	}
	if found.GetGeneration() < s.applied.Generation && since < settleTime {
		return true
	}
	same := found.GetGeneration() == s.applied.Generation
	if deployment, ok := found.(*appsv1.Deployment); ok && s.spec != nil {
		same = equality.Semantic.DeepEqual(deployment.Spec, *s.spec)
	}
	var wanted metav1.PartialObjectMetadata
	return same && json.Unmarshal(body, &wanted) == nil && has(found.GetLabels(), wanted.Labels) && has(found.GetAnnotations(), wanted.Annotations)
}

func has(all, wanted map[string]string) bool {
	return labels.SelectorFromSet(wanted).Matches(labels.Set(all))
}

// changedBy returns the field manager that wrote the object last, other than this one.
func (a *Applier) changedBy(ctx context.Context, id objectID) string {
	object := metadataOf(id)
	if err := a.live.Get(ctx, id.ObjectKey, object); err != nil {
		return ""
	}
	var last metav1.ManagedFieldsEntry
	for _, entry := range object.GetManagedFields() {
		if entry.Manager != v1alpha1.FieldOwner && entry.Subresource != "status" && (last.Time == nil || last.Time.Before(entry.Time)) {
			last = entry
		}
	}
	return last.Manager
}

// find returns the object, or nil if it does not exist.
func (a *Applier) find(ctx context.Context, backend string, id objectID) (client.Object, error) {
	object := Prototype(id.GroupVersionKind)
	var reader client.Reader = a.client
	if isOptional(id.GroupVersionKind) {
		reader = a.live
	}
	err := reader.Get(ctx, id.ObjectKey, object)
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

// observed returns the state of an apply configuration that holds kube-apiserver's response: the
// generated types have no getters for metadata.
func observed(answer manifests.Object) (state, error) {
	body, err := json.Marshal(answer)
	if err != nil {
		return state{}, err
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &object); err != nil {
		return state{}, err
	}
	found := state{
		resourceVersion: object.ResourceVersion,
		applied:         Applied{UID: object.UID, Generation: object.Generation},
	}
	if object.Kind == "Deployment" {
		var deployment appsv1.Deployment
		if err := json.Unmarshal(body, &deployment); err != nil {
			return state{}, err
		}
		found.spec = &deployment.Spec
	}
	return found, nil
}

// NotOwnedError means that an object with the name of a desired one belongs to another
// owner.
type NotOwnedError struct {
	Kind schema.GroupVersionKind
	Key  client.ObjectKey
	// Backend is the MetricsBackend that owns the object, if any.
	Backend string
	// Wanted is the MetricsBackend that has the desired object.
	Wanted string
}

// Error implements error.
func (e *NotOwnedError) Error() string {
	object := fmt.Sprintf("%s %s", e.Kind.Kind, Path(e.Key))
	if e.Backend != "" {
		return fmt.Sprintf("%s belongs to MetricsBackend %q", object, e.Backend)
	}
	return fmt.Sprintf("%s exists and does not belong to this MetricsBackend: delete it, or hand it over with the label %s=%s",
		object, v1alpha1.LabelBackend, e.Wanted)
}

// Path returns NAMESPACE/NAME, or NAME for a cluster-scoped object.
func Path(key client.ObjectKey) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.Namespace + "/" + key.Name
}
