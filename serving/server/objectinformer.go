// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// metaObject is an API object with metadata.
type metaObject interface {
	runtime.Object
	metav1.Object
}

// objectInformer follows all objects of a kind, or a selection of them. Whatever changes,
// it hands on all of them: what is made of them is made anew, once for a burst of
// changes.
type objectInformer[T metaObject] struct {
	followed
	informer cache.SharedIndexInformer
	// apply takes all objects, ordered by namespace and name, which it must not change.
	// It is called by one goroutine, for the first time once it is known what there is.
	apply   func(context.Context, []T)
	changed chan struct{}
}

func newObjectInformer[T metaObject](what, resource string, source cache.ListerWatcher, example T, apply func(context.Context, []T)) (*objectInformer[T], error) {
	o := &objectInformer[T]{
		followed: followed{what: what, resource: resource},
		informer: cache.NewSharedIndexInformer(source, example, 0, nil),
		apply:    apply,
		changed:  make(chan struct{}, 1),
	}
	if err := o.informer.SetTransform(withoutManagedFields); err != nil {
		return nil, fmt.Errorf("trim %s: %w", what, err)
	}
	err := o.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		o.failed(ctx, r, err)
		o.notify()
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", what, err)
	}
	return o, nil
}

// run follows the objects until the context ends.
func (o *objectInformer[T]) run(ctx context.Context) {
	handler, err := o.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { o.see() },
		UpdateFunc: func(before, after any) {
			if specChanged(before, after) {
				o.see()
			}
		},
		DeleteFunc: func(any) { o.see() },
	})
	if err != nil {
		// Only an informer that has ended refuses a handler.
		klog.FromContext(ctx).Error(err, "Cannot follow "+o.what)
		return
	}
	handled := cache.InformerSynced(handler.HasSynced)
	o.handled.Store(&handled)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o.informer.RunWithContext(ctx)
	}()
	defer func() { <-ended }()
	synced := handler.HasSyncedChecker().Done()
	for {
		select {
		case <-ctx.Done():
			return
		case <-synced:
			synced = nil
		case <-o.changed:
		}
		if o.read() == nil {
			o.apply(ctx, o.list())
		}
	}
}

func (o *objectInformer[T]) see() {
	o.seen()
	o.notify()
}

func (o *objectInformer[T]) notify() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

func (o *objectInformer[T]) list() []T {
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

// specChanged says whether more than the status or the metadata differs: the operator
// writes the status of each declared metric every minute. What has no generation
// (Secrets) changes with each resourceVersion.
func specChanged(before, after any) bool {
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

// withoutManagedFields drops the larger part of most objects' metadata.
func withoutManagedFields(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}
