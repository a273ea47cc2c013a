// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package selectorresolver resolves label selectors to the names of objects of any resource,
// from metadata alone.
//
// Pods, which nearly all autoscalers select, come from the existing informer. Objects of other
// resources are listed on demand. The lists are shared and cached for a few seconds, since
// autoscalers and watches repeat them; rarely used resources need no watch.
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

	"github.com/metricsbackend/metrics-backend-operator/internal/lru"
)

const (
	// freshFor is how long a list is reused, and so how long a new object may be missing.
	freshFor = 10 * time.Second
	// failureFor is how long an error is reused, so that many autoscalers do not repeat a
	// request that fails.
	failureFor = 5 * time.Second
	// keptFor is how long Known may return a list.
	keptFor = 10 * time.Minute
	// maxCachedNames and maxCachedLists limit the cached lists; the names take some 20 MB.
	maxCachedNames = 200_000
	maxCachedLists = 2000
	// MaxNames limits the objects that a selector may select of other resources than pods.
	MaxNames = 10_000
	// timeout of a list.
	timeout = 10 * time.Second
)

// AggregationLabel is the label of ClusterRoles that are aggregated to serving's: with it an
// administrator grants the right to list a resource.
const AggregationLabel = "metricsbackend.io/aggregate-to-serving"

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// Pods looks up pods in memory.
type Pods interface {
	// Names returns the names of the pods that a selector selects, ordered.
	Names(namespace string, selector labels.Selector) []string
}

// Resolver resolves label selectors to names.
type Resolver struct {
	pods    Pods
	synced  func() bool
	client  metadata.Interface
	clock   clock.PassiveClock
	calls   singleflight.Group
	limiter *listLimiter
	// cached are the newest lists, and errors those of failed ones.
	cached *lru.Cache[string, list]
	errors *cache.LRUExpireCache
}

// list has the names that a selector selected at a time.
type list struct {
	names []string
	at    time.Time
}

// NewResolver returns a Resolver. synced reports whether all pods are known; client lists the
// objects of other resources and needs no rate limit.
func NewResolver(known Pods, synced func() bool, client metadata.Interface, c clock.PassiveClock) *Resolver {
	return &Resolver{
		pods: known, synced: synced, client: client, clock: c,
		limiter: newListLimiter(), errors: cache.NewLRUExpireCacheWithClock(maxCachedLists, c),
		cached: lru.New(maxCachedLists, maxCachedNames, func(_ string, l list) int { return len(l.names) }),
	}
}

// Names returns the ordered names of the selected objects of a resource in a namespace, which is
// empty for cluster-scoped resources. The slice is shared and must not be modified. Errors are API
// statuses: 403 if this server may not list the resource, 404 if it does not exist, 503 if
// kube-apiserver does not answer.
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
	if err, ok := r.errors.Get(key); ok {
		return nil, err.(error)
	}
	select {
	case result := <-r.startList(key, resource, namespace, selector): //nolint:contextcheck // A list is for all who wait for it, not for the first.
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.([]string), nil
	case <-ctx.Done():
		return nil, apierrors.NewTimeoutError(fmt.Sprintf("list %s: %v", resource.GroupResource(), ctx.Err()), 0)
	}
}

// Known returns the cached result of Names, which may be some minutes old, and starts a new list
// if it is. It does not block, and returns false if nothing is cached.
func (r *Resolver) Known(resource schema.GroupVersionResource, namespace string, selector labels.Selector) ([]string, bool) {
	if resource.GroupResource() == pods.GroupResource() {
		if !r.synced() {
			return nil, false
		}
		return r.pods.Names(namespace, selector), true
	}
	key := keyOf(resource, namespace, selector)
	known, ok := r.known(key)
	if _, failed := r.errors.Get(key); !failed && (!ok || r.clock.Since(known.at) >= freshFor) {
		r.startList(key, resource, namespace, selector)
	}
	return known.names, ok
}

func keyOf(resource schema.GroupVersionResource, namespace string, selector labels.Selector) string {
	return fmt.Sprintf("%s %q %q", resource, namespace, selector)
}

// known returns the newest list, if it is no older than keptFor.
func (r *Resolver) known(key string) (list, bool) {
	l, ok := r.cached.Get(key)
	if !ok || r.clock.Since(l.at) >= keptFor {
		return list{}, false
	}
	return l, true
}

// startList starts a list, or joins the current one. The list does not end with the request that
// started it.
func (r *Resolver) startList(key string, resource schema.GroupVersionResource, namespace string, selector labels.Selector) <-chan singleflight.Result {
	return r.calls.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		l, err := r.list(ctx, resource, namespace, selector)
		if err != nil {
			r.errors.Add(key, err, failureFor)
			return nil, err
		}
		r.cached.Add(key, l)
		return l.names, nil
	})
}

// list lists the names from kube-apiserver, page by page, once the limiter allows it.
func (r *Resolver) list(ctx context.Context, resource schema.GroupVersionResource, namespace string, selector labels.Selector) (list, error) {
	release, err := r.limiter.acquire(ctx, namespace)
	if err != nil {
		return list{}, apierrors.NewServiceUnavailable(fmt.Sprintf("list %s to select among them: there was no turn for it in %v, since others are listed", resource.GroupResource(), timeout))
	}
	defer release()
	began := r.clock.Now()
	found := []string{}
	page := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return r.client.Resource(resource).Namespace(namespace).List(ctx, options)
	})
	page.PageBufferSize = 0
	err = page.EachListItem(ctx, metav1.ListOptions{LabelSelector: selector.String()}, func(object runtime.Object) error {
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
		return list{}, explain(resource.GroupResource(), err)
	}
	slices.Sort(found)
	return list{names: found, at: began}, nil
}

// explain converts an error of kube-apiserver to one for the client, which is not to blame for
// most of them.
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
