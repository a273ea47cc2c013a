// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
)

// metaObject is an API object with metadata.
type metaObject interface {
	runtime.Object
	metav1.Object
}

// ObjectInformer watches all objects of a kind, or a selection of them. After each change,
// or burst of changes, it applies the complete list.
type ObjectInformer[T metaObject] struct {
	reflectorStatus
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandlerRegistration
	// apply receives all objects, ordered by namespace and name, which it must not change.
	// One goroutine calls it, for the first time when the objects are known.
	apply   func(context.Context, []T)
	applied atomic.Bool
	changed wake.Signal
}

// NewObjectInformer returns an informer that names the objects what in logs, and resource, with its group, in hints.
func NewObjectInformer[T metaObject](what, resource string, source cache.ListerWatcher, example T, apply func(context.Context, []T)) *ObjectInformer[T] {
	o := &ObjectInformer[T]{
		reflectorStatus: reflectorStatus{what: what, resource: resource},
		informer:        cache.NewSharedIndexInformer(source, example, 0, nil),
		apply:           apply,
		changed:         wake.NewSignal(),
	}
	// Only an informer that was started refuses these.
	utilruntime.Must(o.informer.SetTransform(trim))
	utilruntime.Must(o.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		o.handleError(ctx, r, err)
		o.changed.Set()
	}))
	var err error
	o.handler, err = o.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { o.received(true) },
		UpdateFunc: func(before, after any) { o.received(specChanged(before, after)) },
		DeleteFunc: func(any) { o.received(true) },
	})
	utilruntime.Must(err)
	return o
}

// Run watches the objects until the context ends.
func (o *ObjectInformer[T]) Run(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o.informer.RunWithContext(ctx)
	}()
	defer func() { <-ended }()
	synced := o.handler.HasSyncedChecker().Done()
	for {
		select {
		case <-ctx.Done():
			return
		case <-synced:
			synced = nil
		case <-o.changed:
		}
		if o.known() == nil {
			o.apply(ctx, o.list())
			o.applied.Store(true)
		}
	}
}

// known returns nil once the objects have been listed, or there are none because the CRD is
// missing, and otherwise why not.
func (o *ObjectInformer[T]) known() error {
	if o.handler.HasSynced() {
		return nil
	}
	return o.reason()
}

// hasApplied returns nil once the objects are known and applied.
func (o *ObjectInformer[T]) hasApplied() error {
	if err := o.known(); err != nil {
		return err
	}
	if !o.applied.Load() {
		return errors.New("not applied yet")
	}
	return nil
}

// received records that the watch works, so that its next failure is logged like a first one.
func (o *ObjectInformer[T]) received(changed bool) {
	o.lastFailure.Store(nil)
	if changed {
		o.changed.Set()
	}
}

func (o *ObjectInformer[T]) list() []T {
	var all []T
	for _, obj := range o.informer.GetStore().List() {
		if t, ok := obj.(T); ok {
			all = append(all, t)
		}
	}
	sortByName(all)
	return all
}

func sortByName[T metaObject](objects []T) {
	slices.SortFunc(objects, func(a, b T) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
}

// specChanged reports whether more than the status or the metadata differs: the operator
// writes the status of each declared metric every minute. An object without a generation (a
// Secret) changes with its resourceVersion. Of a MetricsBackend's status, what settings depend
// on is compared, too.
func specChanged(before, after any) bool {
	if old, ok := before.(*v1alpha1.MetricsBackend); ok {
		current, ok := after.(*v1alpha1.MetricsBackend)
		return !ok || settingsChanged(old, current)
	}
	old, err := meta.Accessor(before)
	if err != nil {
		return true
	}
	current, err := meta.Accessor(after)
	if err != nil {
		return true
	}
	if old.GetUID() != current.GetUID() || old.GetGeneration() != current.GetGeneration() {
		return true
	}
	return current.GetGeneration() == 0 && old.GetResourceVersion() != current.GetResourceVersion()
}

// trim drops what is not read. Teams choose the size of the metadata of their metrics.
func trim(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
		o.SetAnnotations(nil)
		o.SetLabels(nil)
		o.SetOwnerReferences(nil)
		o.SetFinalizers(nil)
	}
	switch o := obj.(type) {
	case *v1alpha1.CustomMetric:
		o.Status = v1alpha1.DeclaredMetricStatus{}
	case *v1alpha1.ExternalMetric:
		o.Status = v1alpha1.DeclaredMetricStatus{}
	}
	return obj, nil
}

// Reasons why a list or watch fails.
const (
	crdMissing  = "CRDMissing"
	forbidden   = "Forbidden"
	undecodable = "Undecodable"
	unavailable = "Unavailable"
)

// reflectorStatus tracks the failures of an informer whose CRD may be missing or whose
// objects may be unreadable. The reflector retries with backoff; each reason is logged once.
type reflectorStatus struct {
	what, resource string
	// lastFailure is the reason of the last failure; nil after a success.
	lastFailure atomic.Pointer[string]
}

// reason returns why nothing was listed yet; nil when the CRD is missing.
func (s *reflectorStatus) reason() error {
	switch failure := s.lastFailure.Load(); {
	case failure == nil:
		return errors.New("no answer from kube-apiserver yet")
	case *failure == crdMissing:
		return nil
	default:
		return errors.New(*failure)
	}
}

// handleError is a cache.WatchErrorHandlerWithContext.
func (s *reflectorStatus) handleError(ctx context.Context, r *cache.Reflector, err error) {
	reason, hint := s.classify(err)
	if reason == "" {
		cache.DefaultWatchErrorHandler(ctx, r, err)
		return
	}
	logger := klog.FromContext(ctx)
	if before := s.lastFailure.Swap(&reason); before != nil && *before == reason {
		logger.V(4).Info("Still cannot watch "+s.what, "err", err)
		return
	}
	logger.Info("Cannot watch "+s.what+"; the current state stays until a retry succeeds", "reason", reason, "hint", hint, "err", err)
}

// classify returns the reason of a failure and what to do; empty for errors that client-go
// handles.
func (s *reflectorStatus) classify(err error) (reason, hint string) {
	switch {
	case apierrors.IsNotFound(err):
		return crdMissing, "install the CustomResourceDefinition " + s.resource
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return forbidden, "this account needs get, list and watch on " + s.resource
	case runtime.IsNotRegisteredError(err), runtime.IsMissingKind(err), runtime.IsStrictDecodingError(err):
		return undecodable, "the object does not fit this version of serving"
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return "", ""
	}
	return unavailable, "kube-apiserver cannot be reached, or its answer cannot be read"
}
