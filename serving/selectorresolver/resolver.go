// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package selectorresolver knows which objects a label selector selects, of any resource of
// the cluster, from metadata alone.
//
// Pods, which nearly all autoscalers select, are known from the informer that there is
// anyway. Objects of other resources are listed when somebody selects among them: the
// answer is shared and kept for a few seconds, since autoscalers and watches ask the
// same again and again, and there is no watch on resources that hardly anybody asks
// about.
package selectorresolver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/clock"
)

const (
	// freshFor is how long the names that a selector selects are good, and so how long an
	// object may be unknown that was made meanwhile.
	freshFor = 10 * time.Second
	// failureFor is that for an error: long enough for kube-apiserver not to be asked in
	// vain by each of many autoscalers.
	failureFor = 5 * time.Second
	// keptFor is how long names are kept for who does not wait for better ones.
	keptFor = 10 * time.Minute
	// MaxNames is how many objects of other resources than pods a selector may select.
	MaxNames = 10_000
	// timeout of a list.
	timeout = 10 * time.Second
)

// AggregationLabel is the label of ClusterRoles whose rules serving has, too: with it
// an administrator grants the right to list a resource.
const AggregationLabel = "metricsbackend.io/aggregate-to-serving"

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// Pods are the pods that are known.
type Pods interface {
	// Names returns the names of the pods that a selector selects, ordered.
	Names(namespace string, selector labels.Selector) []string
}

// Resolver resolves label selectors to names.
type Resolver struct {
	pods   Pods
	synced func() bool
	client metadata.Interface
	clock  clock.PassiveClock
	asking singleflight.Group
	lists  *gate
	// listed holds selections that were good once, and refused the errors of those that
	// failed.
	listed  *selections
	refused *cache.LRUExpireCache
}

// NewResolver returns a Resolver. synced says whether all pods are known; client lists
// the objects of other resources, and need not be limited by a rate.
func NewResolver(known Pods, synced func() bool, client metadata.Interface, c clock.PassiveClock) *Resolver {
	return &Resolver{
		pods: known, synced: synced, client: client, clock: c,
		lists: newGate(), listed: newSelections(), refused: cache.NewLRUExpireCacheWithClock(kept, c),
	}
}

// Names returns the names of a resource's objects in a namespace (empty for those
// without one) that a selector selects, ordered. They are shared and must not be
// changed. An error is a status of the API: 403 where this server may not list the
// resource, 404 where there is no such resource, 503 where kube-apiserver does not
// answer.
func (r *Resolver) Names(ctx context.Context, resource schema.GroupVersionResource, namespace string, selector labels.Selector) ([]string, error) {
	if resource.GroupResource() == pods.GroupResource() {
		if !r.synced() {
			return nil, apierrors.NewServiceUnavailable("this server has just started and does not know all pods yet")
		}
		return r.pods.Names(namespace, selector), nil
	}
	key := keyOf(resource, namespace, selector)
	if known, ok := r.known(key); ok && r.clock.Since(known.at) < freshFor {
		return known.names, nil
	}
	if err, ok := r.refused.Get(key); ok {
		return nil, err.(error)
	}
	select {
	case result := <-r.ask(key, resource, namespace, selector): //nolint:contextcheck // A list is for all who wait for it, not for the first.
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.([]string), nil
	case <-ctx.Done():
		return nil, apierrors.NewTimeoutError(fmt.Sprintf("list %s: %v", resource.GroupResource(), ctx.Err()), 0)
	}
}

// Known returns what Names does, without an error or a wait: what was known some minutes
// ago at most, while better is looked for. It returns false where nothing was.
func (r *Resolver) Known(resource schema.GroupVersionResource, namespace string, selector labels.Selector) ([]string, bool) {
	if resource.GroupResource() == pods.GroupResource() {
		if !r.synced() {
			return nil, false
		}
		return r.pods.Names(namespace, selector), true
	}
	key := keyOf(resource, namespace, selector)
	known, ok := r.known(key)
	if _, failed := r.refused.Get(key); !failed && (!ok || r.clock.Since(known.at) >= freshFor) {
		r.ask(key, resource, namespace, selector)
	}
	return known.names, ok
}

func keyOf(resource schema.GroupVersionResource, namespace string, selector labels.Selector) string {
	return fmt.Sprintf("%s %q %q", resource, namespace, selector)
}

func (r *Resolver) known(key string) (selection, bool) { return r.listed.get(key, r.clock.Now()) }

// ask lists once for all who ask meanwhile, so it does not end with the request of one.
func (r *Resolver) ask(key string, resource schema.GroupVersionResource, namespace string, selector labels.Selector) <-chan singleflight.Result {
	return r.asking.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		leave, err := r.lists.enter(ctx, namespace)
		if err != nil {
			err = apierrors.NewServiceUnavailable(fmt.Sprintf("list %s to select among them: there was no turn for it in %v, since others are listed", resource.GroupResource(), timeout))
			r.refused.Add(key, err, failureFor)
			return nil, err
		}
		defer leave()
		began := r.clock.Now()
		listed, err := r.list(ctx, resource, namespace, selector)
		if err != nil {
			r.refused.Add(key, err, failureFor)
			return nil, err
		}
		r.listed.put(selection{key: key, names: listed, at: began})
		return listed, nil
	})
}

// list asks kube-apiserver, page by page.
func (r *Resolver) list(ctx context.Context, resource schema.GroupVersionResource, namespace string, selector labels.Selector) ([]string, error) {
	found := []string{}
	page := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return r.client.Resource(resource).Namespace(namespace).List(ctx, options)
	})
	page.PageBufferSize = 0
	err := page.EachListItem(ctx, metav1.ListOptions{LabelSelector: selector.String()}, func(object runtime.Object) error {
		if len(found) == MaxNames {
			return apierrors.NewBadRequest(fmt.Sprintf("labelSelector selects more than %d %s: select fewer", MaxNames, resource.GroupResource()))
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			return err
		}
		found = append(found, accessor.GetName())
		return nil
	})
	if err != nil {
		return nil, explain(resource.GroupResource(), err)
	}
	slices.Sort(found)
	return found, nil
}

// explain makes an error of kube-apiserver's one of ours: what went wrong between the
// two of us is not the client's.
func explain(resource schema.GroupResource, err error) error {
	switch {
	case apierrors.IsBadRequest(err):
		return err
	case apierrors.IsForbidden(err):
		return apierrors.NewForbidden(resource, "", fmt.Errorf(
			"the metrics backend may not list them, which it must to select objects by label: grant list on %s in a ClusterRole with the label %s: \"true\"",
			resource, AggregationLabel))
	case apierrors.IsNotFound(err):
		return apierrors.NewNotFound(resource, "")
	}
	return apierrors.NewServiceUnavailable(fmt.Sprintf("list %s to select among them: %v", resource, err))
}
