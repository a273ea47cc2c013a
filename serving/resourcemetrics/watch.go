// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/metrics/pkg/apis/metrics"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// Streams are the watches of metrics.k8s.io, in every version.
type Streams struct {
	admission   *stream.Admission
	nodes, pods *feed
	// serve says that watches are served.
	serve atomic.Bool
}

// NewStreams distributes what is published to a store from now on. random returns
// numbers in [0, 1) and may be called by several goroutines. Run keeps its time.
func NewStreams(store *samplestore.Store, c clock.WithTicker, random func() float64, admission *stream.Admission, initial stream.Settings) *Streams {
	newFeed := func(k *kind, table *samplestore.Table) *feed {
		f := &feed{kind: k, hub: stream.NewHub(&source{Table: table, item: k.item}, c, random, initial)}
		newest := int64(emptyListVersion)
		for o := range table.List("", samplestore.Key{}) {
			newest = max(newest, o.Point.Newest.UnixMilli())
		}
		f.newest.Store(newest)
		table.Observe(f.publish)
		return f
	}
	s := &Streams{admission: admission, nodes: newFeed(nodes, store.Nodes), pods: newFeed(pods, store.Pods)}
	s.serve.Store(true)
	return s
}

// Run keeps the time of all watches until the context ends.
func (s *Streams) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, f := range []*feed{s.nodes, s.pods} {
		running.Go(func() { f.hub.Run(ctx) })
	}
	running.Wait()
}

// Apply changes the settings of both resources' watches.
func (s *Streams) Apply(settings stream.Settings) {
	s.nodes.hub.Apply(settings)
	s.pods.hub.Apply(settings)
}

// Drain refuses new watches and ends those that are open, spread over a time.
func (s *Streams) Drain(over time.Duration) {
	s.nodes.hub.Drain(over)
	s.pods.hub.Drain(over)
}

// endSpread is over how long watches end that are turned off: their clients list
// or poll instead, and need not do so all at once.
const endSpread = 20 * time.Second

// endAll ends the watches that are open.
func (s *Streams) endAll() {
	s.nodes.hub.EndAll(endSpread)
	s.pods.hub.EndAll(endSpread)
}

// feed brings what is published of one resource to its watches.
type feed struct {
	kind *kind
	hub  *stream.Hub
	// newest sample of all that was published, in milliseconds.
	newest atomic.Int64
	// items is publish's, kept for its memory.
	items []stream.Item
}

// publish is the observer of a table.
func (f *feed) publish(objects []*samplestore.Object) {
	f.items = f.items[:0]
	newest := f.newest.Load()
	for _, o := range objects {
		f.items = append(f.items, f.kind.item(o))
		newest = max(newest, o.Point.Newest.UnixMilli())
	}
	f.newest.Store(newest)
	f.hub.Publish(f.items)
	clear(f.items)
}

// bookmark makes the object of a BOOKMARK event: nothing but a resourceVersion,
// like that of a list, and what tells the end of the initial events.
func (f *feed) bookmark(initialEventsEnd bool) runtime.Object {
	meta := metav1.ObjectMeta{ResourceVersion: strconv.FormatInt(f.newest.Load(), 10)}
	if initialEventsEnd {
		meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return f.kind.newBookmark(meta)
}

var _ rest.Watcher = &storage{}

// Watch streams the data points that the options select: all that there are, and
// then each new one. A resourceVersion in the options is ignored whatever it
// says: there is no state but the newest, and so no history to go on from.
func (s *storage) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	if !s.streams.serve.Load() {
		return nil, s.notServed()
	}
	var name string
	if user, ok := request.UserFrom(ctx); ok {
		name = user.GetName()
	}
	release, err := s.streams.admission.Admit(name)
	if err != nil {
		return nil, err
	}
	// All initial events are at hand: there is nothing that a seat of priority
	// and fairness would have to wait for.
	flowcontrol.WatchInitialized(ctx)
	watcher, err := s.feed.hub.Watch(ctx, s.watchRequest(ctx, options, name, release))
	if err != nil {
		// Not the watcher itself, which is a nil of a type.
		return nil, err
	}
	if !s.streams.serve.Load() {
		// Turned off meanwhile: those that are open have been told to end already.
		watcher.Stop()
		return nil, s.notServed()
	}
	return watcher, nil
}

// notServed is what the API server answers where there is no Watch at all.
func (s *storage) notServed() error {
	return apierrors.NewMethodNotSupported(metrics.Resource(s.kind.resource), "watch")
}

func (s *storage) watchRequest(ctx context.Context, options *metainternalversion.ListOptions, user string, release func()) stream.Request {
	r := stream.Request{
		Selection:   s.selection(request.NamespaceValue(ctx), options),
		NewBookmark: s.feed.bookmark,
		Abort:       stream.AbortFrom(ctx),
		Release:     release,
		Meter:       s.meter,
		Client:      stream.Client{User: user, UserAgent: stream.UserAgentFrom(ctx)},
	}
	// The API server's filters note it first of all.
	r.Received, _ = request.ReceivedTimestampFrom(ctx)
	if options == nil {
		return r
	}
	r.Bookmarks = options.AllowWatchBookmarks
	r.InitialEventsEnd = options.AllowWatchBookmarks && options.SendInitialEvents != nil && *options.SendInitialEvents
	r.CleanEnd = stream.InitialEventsUnasked(ctx)
	return r
}
