// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
	"github.com/metricsbackend/metrics-backend-operator/serving/valuecache"
)

// Options of an API group.
type Options struct {
	// Enabled reports whether a version is served.
	Enabled func(schema.GroupVersion) bool
	// Querier has the results of the metrics' queries.
	Querier query.Querier
	// Quota counts the watches of all API groups.
	Quota *stream.Quota
	// Settings of watches, until Apply.
	Settings stream.Settings
	Clock    clock.WithTicker
	// Random returns numbers in [0, 1) and must be safe for concurrent use.
	Random func() float64
	// MinRequestTimeout is the API server's option: a watch without a timeout lasts at least so
	// long, and less than twice.
	MinRequestTimeout time.Duration
}

// Group is an API group in an API server.
type Group struct {
	*stream.WatchVerb
	api               API
	codecs            serializer.CodecFactory
	cache             *valuecache.Cache
	hub               *stream.Hub
	metrics           map[schema.GroupVersion]*stream.Metrics
	clock             clock.WithTicker
	random            func() float64
	minRequestTimeout time.Duration
	// aggregated serves /apis.
	aggregated aggregated.ResourceManager

	// mu guards discovery.
	mu sync.Mutex
	// current is the content of discovery, and lastError that of the last update, or "".
	current   document
	lastError string
	// watchable says that discovery has the verb watch.
	watchable bool
	// resources is the current content of /apis/GROUP/VERSION in each version.
	resources atomic.Pointer[[]metav1.APIResource]
}

// Install adds the enabled versions of an API group to an API server, or returns nil if there are
// none. The group serves watch until ServeWatch says otherwise. The API server needs
// NewRequestInfoResolver for the group.
func Install(server *genericapiserver.GenericAPIServer, api API, o Options) (*Group, error) {
	api.Versions = slices.DeleteFunc(slices.Clone(api.Versions), func(v schema.GroupVersion) bool { return !o.Enabled(v) })
	if len(api.Versions) == 0 {
		return nil, nil
	}
	cache := valuecache.NewCache(api.Group(), o.Clock, o.Querier)
	g := &Group{
		api: api, codecs: newCodecs(api.Scheme), cache: cache, clock: o.Clock, random: o.Random, minRequestTimeout: o.MinRequestTimeout,
		aggregated: server.AggregatedDiscoveryGroupManager,
		hub:        stream.NewHub(cache, o.Clock, o.Random, o.Settings),
		metrics:    map[schema.GroupVersion]*stream.Metrics{},
		watchable:  true,
	}
	cache.Observe(g.hub.Publish)
	g.WatchVerb = stream.NewWatchVerb(o.Quota, g.hub)
	for _, version := range api.Versions {
		g.metrics[version] = stream.NewMetrics(metricsAPI(version))
	}
	g.resources.Store(&[]metav1.APIResource{})
	if err := g.installPaths(server); err != nil {
		return nil, fmt.Errorf("install %s: %w", api.Group(), err)
	}
	g.installGroup(server)
	g.mu.Lock()
	defer g.mu.Unlock()
	first, _ := g.nextDocument()
	g.advertiseOrLog(klog.Background(), first)
	return g, nil
}

// metricsAPI returns the labels of a version in metrics. It has no resource, since clients choose
// the resources.
func metricsAPI(version schema.GroupVersion) stream.API {
	return stream.API{Group: version.Group, Version: version.Version}
}

// APIs returns the labels of versions in metrics.
func APIs(versions ...schema.GroupVersion) []stream.API {
	apis := make([]stream.API, len(versions))
	for i, version := range versions {
		apis[i] = metricsAPI(version)
	}
	return apis
}

// Run runs the watches and updates discovery until the context ends.
func (g *Group) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, run := range []func(context.Context){g.cache.Run, g.WatchVerb.Run, g.updateDiscovery} {
		running.Go(func() { run(ctx) })
	}
	running.Wait()
}

// Refresh applies changed metrics to watches now instead of with their next result.
func (g *Group) Refresh() { g.cache.Refresh() }

// ServeWatch enables or disables the verb watch in all versions, see stream.WatchVerb. Get does
// not change.
func (g *Group) ServeWatch(serve bool) {
	g.Serve(serve, func(watch bool) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.watchable = watch
		g.advertiseOrLog(klog.Background(), g.current)
	})
}

// NewScheme knows the types of an API group and the meta types of requests and errors.
func NewScheme(install func(*runtime.Scheme)) *runtime.Scheme {
	scheme := runtime.NewScheme()
	install(scheme)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return scheme
}

// newCodecs returns codecs that encode long lists item by item. CBOR is negotiated whether or
// not the process has CBORServingAndStorage on: that gate is about storage and apply, too.
func newCodecs(scheme *runtime.Scheme) serializer.CodecFactory {
	return serializer.NewCodecFactory(scheme,
		serializer.WithStreamingCollectionEncodingToJSON(),
		serializer.WithStreamingCollectionEncodingToProtobuf(),
		serializer.WithSerializer(cbor.NewSerializerInfo))
}
