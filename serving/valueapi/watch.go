// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// watch opens a watch. A resourceVersion in the options is ignored, since there is no history
// to resume from.
func (g *Group) watch(ctx context.Context, version schema.GroupVersion, options *metainternalversion.ListOptions, r Request) (watch.Interface, error) {
	var subscription *Subscription
	watcher, err := g.Open(ctx, g.hub, schema.GroupResource{Group: g.api.Group()}, func() (stream.Request, error) {
		var err error
		if subscription, err = r.Subscribe(ctx, options); err != nil {
			return stream.Request{}, apiError(err)
		}
		id := subscription.ID
		unsubscribe, err := g.cache.Subscribe(ctx, subscription.Subscription)
		if err != nil {
			subscription.Release()
			return stream.Request{}, apiError(fmt.Errorf("watch %s: %w", subscription.What, err))
		}
		return stream.Request{
			Selection:   stream.Selection{Namespace: id},
			Bookmarks:   options.AllowWatchBookmarks,
			NewBookmark: func(bool) runtime.Object { return newBookmark(g.api.NewList(), g.cache.ResourceVersion(id)) },
			Release: func() {
				subscription.Release()
				unsubscribe()
			},
			Metrics: g.metrics[version],
			Watched: []any{"watched", subscription.What},
		}, nil
	})
	if err != nil {
		return nil, err // not watcher, a typed nil
	}
	if subscription.Opened != nil {
		if err := subscription.Opened(watcher); err != nil {
			watcher.Stop()
			return nil, apiError(err)
		}
	}
	return watcher, nil
}

// noInitialEvents refuses sendInitialEvents: values have no ObjectMeta, so no annotation can mark
// the end of the initial events, and no informer can store them.
func noInitialEvents() error {
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", field.ErrorList{
		field.Forbidden(field.NewPath("sendInitialEvents"),
			"values have no metadata that could mark the end of the initial events; leave it out: every watch begins with all values"),
	})
}
