// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// Options of an API group.
type Options struct {
	// Source has the values of the subscribed requests.
	Source stream.Source
	// Admission counts the watches of all API groups.
	Admission *stream.Admission
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
	hub               *stream.Hub
	metrics           map[schema.GroupVersion]*stream.Metrics
	clock             clock.WithTicker
	random            func() float64
	minRequestTimeout time.Duration
	// aggregated serves /apis.
	aggregated aggregated.ResourceManager

	// mu guards discovery.
	mu sync.Mutex
	// told is the content of discovery, and untold the last error of an update, or "".
	told   document
	untold string
	// watchable says that discovery has the verb watch.
	watchable bool
	// resources is the current content of /apis/GROUP/VERSION in each version.
	resources atomic.Pointer[[]metav1.APIResource]
}

// Install adds an API group to an API server. It serves watch until ServeWatch says
// otherwise. The API server needs NewRequestInfoResolver for the group.
func Install(server *genericapiserver.GenericAPIServer, api API, o Options) (*Group, error) {
	if len(api.Versions) == 0 {
		return nil, errors.New("an API group without versions cannot be installed")
	}
	g := &Group{
		api: api, clock: o.Clock, random: o.Random, minRequestTimeout: o.MinRequestTimeout,
		aggregated: server.AggregatedDiscoveryGroupManager,
		hub:        stream.NewHub(o.Source, o.Clock, o.Random, o.Settings),
		metrics:    map[schema.GroupVersion]*stream.Metrics{},
		watchable:  true,
	}
	g.WatchVerb = stream.NewWatchVerb(o.Admission, g.hub)
	for _, version := range api.Versions {
		g.metrics[version] = stream.NewMetrics(MetricsAPI(version))
	}
	g.resources.Store(&[]metav1.APIResource{})
	if err := g.installPaths(server); err != nil {
		return nil, fmt.Errorf("install %s: %w", api.Group(), err)
	}
	g.installGroup(server)
	g.mu.Lock()
	defer g.mu.Unlock()
	first, _ := g.look()
	g.mustAdvertise(klog.Background(), first)
	return g, nil
}

// MetricsAPI returns the labels of a version in metrics. It has no resource, since clients choose
// the resources.
func MetricsAPI(version schema.GroupVersion) stream.API {
	return stream.API{Group: version.Group, Version: version.Version}
}

// Hub returns the hub, to publish the points of the source to.
func (g *Group) Hub() *stream.Hub { return g.hub }

// Run runs the watches and updates discovery until the context ends.
func (g *Group) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { g.WatchVerb.Run(ctx) })
	running.Go(func() { g.refresh(ctx) })
	running.Wait()
}

// ServeWatch enables or disables the verb watch in all versions, see stream.WatchVerb. Get does
// not change.
func (g *Group) ServeWatch(serve bool) {
	g.Serve(serve, func(watch bool) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.watchable = watch
		g.mustAdvertise(klog.Background(), g.told)
	})
}
