// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"context"
	"strconv"
	"sync/atomic"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/metrics/pkg/apis/metrics"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// Streams serves the watches of metrics.k8s.io in every version.
type Streams struct {
	*stream.WatchVerb
	nodes, pods *publisher
}

// NewStreams returns streams of the points that are published to the store from now on. random
// returns numbers in [0, 1) and must be safe for concurrent use.
func NewStreams(store *samplestore.Store, c clock.WithTicker, random func() float64, quota *stream.Quota, initial stream.Settings) *Streams {
	newPublisher := func(k *kind, collection *samplestore.Collection) *publisher {
		p := &publisher{kind: k, hub: stream.NewHub(&source{Collection: collection, item: k.item}, c, random, initial)}
		newest := int64(emptyListVersion)
		for o := range collection.List("", samplestore.Key{}) {
			newest = max(newest, int64(o.Point.Newest))
		}
		p.newest.Store(newest)
		collection.Observe(p.publish)
		return p
	}
	nodes, pods := newPublisher(nodes, store.Nodes), newPublisher(pods, store.Pods)
	return &Streams{WatchVerb: stream.NewWatchVerb(quota, nodes.hub, pods.hub), nodes: nodes, pods: pods}
}

// publisher publishes the points of a table to the watches of one resource.
type publisher struct {
	kind *kind
	hub  *stream.Hub
	// newest is the time of the newest published sample, in milliseconds.
	newest atomic.Int64
	// items is reused by publish.
	items []stream.Item
}

// publish is the observer of the table.
func (p *publisher) publish(objects []*samplestore.Object) {
	p.items = p.items[:0]
	newest := p.newest.Load()
	for _, o := range objects {
		p.items = append(p.items, p.kind.item(o))
		newest = max(newest, int64(o.Point.Newest))
	}
	p.newest.Store(newest)
	p.hub.Publish(p.items)
	clear(p.items)
}

// bookmark returns the object of a BOOKMARK event. It has only the resourceVersion of a list
// and, where it ends the initial events, their annotation.
func (p *publisher) bookmark(initialEventsEnd bool) runtime.Object {
	meta := metav1.ObjectMeta{ResourceVersion: strconv.FormatInt(p.newest.Load(), 10)}
	if initialEventsEnd {
		meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return p.kind.newBookmark(meta)
}

var _ rest.Watcher = &storage{}

// Watch streams the selected points: first the current ones, then each new one. A
// resourceVersion in the options is ignored, since there is no history to resume from.
func (s *storage) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	if err := s.available(); err != nil {
		return nil, err
	}
	w, err := s.streams.Open(ctx, s.publisher.hub, metrics.Resource(s.kind.resource), func() (stream.Request, error) {
		return s.watchRequest(ctx, options), nil
	})
	if err != nil {
		return nil, err // not w, a typed nil
	}
	return w, nil
}

func (s *storage) watchRequest(ctx context.Context, options *metainternalversion.ListOptions) stream.Request {
	r := stream.Request{
		Selection:   s.selection(request.NamespaceValue(ctx), options),
		NewBookmark: s.publisher.bookmark,
		Metrics:     s.metrics,
	}
	if options == nil {
		return r
	}
	r.Bookmarks = options.AllowWatchBookmarks
	r.InitialEventsEnd = options.AllowWatchBookmarks && options.SendInitialEvents != nil && *options.SendInitialEvents
	r.CleanEnd = stream.InitialEventsUnasked(ctx)
	return r
}
